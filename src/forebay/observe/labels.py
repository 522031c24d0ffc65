"""Labels of the rich series: from which part of a message each comes, as settings say it.

A label is a list of places, of which the first that says something counts. Pure functions; a place that is
about a group is left open, since messages are read once for all groups of their queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from forebay.model import Misconfigured

__all__ = ["GROUP", "LABELS", "VALUE_CHARACTERS_MAX", "LabelRules", "LabelSettings", "filled"]

LABELS: Final = (
    "project", "project_name", "endpoint", "source", "event_type", "organisation_id", "organisation_name",
)  # fmt: skip
GROUP: Final = "\0group"
"""Stands in a value for the name of the group, which is filled in later."""
VALUE_CHARACTERS_MAX: Final = 200
"""What is longer is cut."""

_PREFIX: Final = re.compile(r"[^./:]*")
_PLACES: Final = ("queue", "queue.prefix", "group", "partition")
_HINT: Final = (
    "give header.NAME, queue, queue.prefix, group, partition, or =TEXT; several with | between them: the "
    "first that says something counts"
)
_Label: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=500, description="places like header.project | queue.prefix")
]


class LabelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the labels of the rich series come from.

    Places are `header.NAME`, `queue`, `queue.prefix` (the name of the queue up to the first `.`, `/` or `:`),
    `group`, `partition` and `=TEXT`; of several, with `|` between them, the first that says something counts.
    """

    project: _Label = "header.project | queue.prefix"
    """The project of a message."""
    project_name: _Label = "header.project_name | header.project | queue.prefix"
    """The name of the project."""
    endpoint: _Label = "header.endpoint | group"
    """Where a message is delivered to."""
    source: _Label = "header.source | header.flow"
    """Where a message comes from."""
    event_type: _Label = "header.event_type | header.action"
    """What kind of message it is."""
    organisation_id: _Label = "header.organisation_id"
    """The organisation that it belongs to."""
    organisation_name: _Label = "header.organisation_name"
    """The name of that organisation."""

    def __post_init__(self) -> None:
        """Refuse places that aren't any."""
        for label in LABELS:
            for place in _places(getattr(self, label)):
                if place not in _PLACES and not place.startswith(("=", "header.")):
                    raise Misconfigured(f"{place!r} is not a place of a label", hint=_HINT, key=label)
                if place == "header.":
                    raise Misconfigured("a header without a name", hint=_HINT, key=label)


def _places(text: str) -> list[str]:
    return [place.strip() for place in text.split("|")] if text.strip() else []


class LabelRules:
    """The settings, ready to be used on messages."""

    def __init__(self, settings: LabelSettings) -> None:
        self._rules = [_places(getattr(settings, label)) for label in LABELS]
        self.needs_partition = any("partition" in places for places in self._rules)

    def values(self, queue: str, headers: Mapping[str, str] | None, partition: str) -> tuple[str, ...]:
        """The values of all labels, in the order of `LABELS`; GROUP where the group's name belongs."""
        return tuple(_value(places, queue, headers or {}, partition) for places in self._rules)


def _value(places: list[str], queue: str, headers: Mapping[str, str], partition: str) -> str:
    for place in places:
        if found := _found(place, queue, headers, partition):
            return found
    return ""


def _found(place: str, queue: str, headers: Mapping[str, str], partition: str) -> str:
    if place.startswith("header."):
        return headers.get(place.removeprefix("header."), "")[:VALUE_CHARACTERS_MAX]
    if place.startswith("="):
        return place[1:]
    if place == "group":
        return GROUP
    if place == "partition":
        return partition[:VALUE_CHARACTERS_MAX]
    return queue if place == "queue" else _prefix(queue)


def _prefix(queue: str) -> str:
    found = _PREFIX.match(queue)
    return (found[0] if found else "") or queue


def filled(value: str, group: str) -> str:
    """A value with the name of the group in it; no group leaves nothing."""
    return group if value == GROUP else value
