"""The settings of a queue in a contract: how its tasks are worked."""

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from forebay.contract.nodes import Document, excerpt, is_null
from forebay.contract.values import CODECS, Backoff, WorkSettings
from forebay.model import Rejected, parse_seconds

__all__ = ["read_settings"]

Parse = Callable[[str], Any]
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
_YEAR: Final = 365 * 86_400


class _Unfit(Exception):  # noqa: N818 - it never leaves this module
    """A text that is no value of its setting; the message says what would be."""


def _whole(least: int, most: int) -> Parse:
    def parse(text: str) -> int:
        if not (
            text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most
        ):
            raise _Unfit(f"give a whole number from {least} to {most}")
        return int(text)

    return parse


def _number(least: float, most: float) -> Parse:
    def parse(text: str) -> float:
        if not (_NUMBER.fullmatch(text) and least <= float(text) <= most):
            raise _Unfit(f"give a number from {least:g} to {most:g}")
        return float(text)

    return parse


def _seconds(least: float, most: float) -> Parse:
    def parse(text: str) -> float:
        try:
            seconds = parse_seconds(text)
        except Rejected as error:
            raise _Unfit(error.hint or "") from None
        if not least <= seconds <= most:
            raise _Unfit(f"give {least:g} to {most:,} seconds")
        return seconds

    return parse


def _one_of(*words: str) -> Parse:
    def parse(text: str) -> str:
        if text not in words:
            raise _Unfit(f"write {' or '.join(words)}")
        return text

    return parse


def _switch(text: str) -> bool:
    return bool(_one_of("true", "false")(text.lower()) == "true")


_BACKOFF: Final[dict[str, Parse]] = {
    "initial_seconds": _seconds(0, _YEAR),
    "factor": _number(1, 1_000),
    "max_seconds": _seconds(0, _YEAR),
    "jitter": _number(0, 1),
}
_SETTINGS: Final[dict[str, Parse]] = {
    "visibility_seconds": _seconds(0.1, 86_400),
    "handle_seconds_max": _seconds(0.1, _YEAR),
    "batch_size": _whole(1, 10_000),
    "max_processors": _whole(1, 1_000),
    "ordered": _switch,
    "retries_max": _whole(0, (1 << 31) - 2),
    "codec": _one_of(*CODECS),
}


def read_settings(document: Document, node: yaml.Node | None, label: str) -> WorkSettings:
    """The settings of one queue; what is null is as good as not said."""
    if node is None or is_null(node):
        return WorkSettings()
    entries = document.entries(node, f"{label}: settings", (*_SETTINGS, "backoff"))
    pauses = entries.pop("backoff", None)
    return WorkSettings(
        **_parsed(document, entries, f"{label}: settings", _SETTINGS),
        backoff=_backoff(document, pauses, label),
    )


def _backoff(document: Document, node: yaml.Node | None, label: str) -> Backoff:
    if node is None or is_null(node):
        return Backoff()
    entries = document.entries(node, f"{label}: backoff", _BACKOFF)
    found = Backoff(**_parsed(document, entries, f"{label}: backoff", _BACKOFF))
    initial = 1.0 if found.initial_seconds is None else found.initial_seconds
    longest = 3600.0 if found.max_seconds is None else found.max_seconds
    if initial > longest:
        text = f"{label}: backoff: the first pause, {initial:g} s, is over the longest, {longest:g} s"
        document.fault(node, text, "raise max_seconds, or lower initial_seconds")
    return found


def _parsed(
    document: Document, entries: dict[str, yaml.Node], label: str, known: dict[str, Parse]
) -> dict[str, Any]:
    found = {}
    for name, node in entries.items():
        text = document.text(node, f"{label}: {name}")
        if text is None or is_null(node):
            continue
        try:
            found[name] = known[name](text)
        except _Unfit as error:
            document.fault(node, f"{label}: {name} is {excerpt(text)}", str(error))
    return found
