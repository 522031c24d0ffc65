"""The last minutes of each queue, from consecutive snapshots: what came in, what went out, what waits.

Invariants: it keeps `POINTS_MAX` points of `QUEUES_MAX` groups and no more; a counter that goes back, since
the log is another one, is no rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from forebay.observe.document import Document

__all__ = ["POINTS_MAX", "QUEUES_MAX", "STEP_SECONDS", "GroupKey", "History", "Plot", "Rates", "numbers_of"]

STEP_SECONDS: Final = 5.0
"""Between two points; snapshots that come sooner replace the last one."""
POINTS_MAX: Final = 61
QUEUES_MAX: Final = 1_000
_WINDOW_SECONDS: Final = 30.0
"""Over how long a rate is measured that is shown as a number."""

GroupKey = tuple[str, str]
"""A queue and a group of it."""
_NO_NUMBERS: Final[Mapping[tuple[str, ...], float]] = {}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How a group fares now, in messages a second."""

    in_rate: float
    out_rate: float
    drain_seconds: float | None
    """When nothing waits any more, if it goes on like this; none while what waits doesn't get less."""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A group over the last minutes, oldest first: rates between two points, and what was ready at each."""

    at: Sequence[float]
    """In seconds since 1970."""
    in_rates: Sequence[float]
    out_rates: Sequence[float]
    ready: Sequence[float]


class _Point(NamedTuple):
    at: float
    accepted: float
    done: float
    ready: float


class History:
    """The last minutes of each group."""

    def __init__(self) -> None:
        self._points: dict[GroupKey, deque[_Point]] = {}

    def add(self, document: Document) -> None:
        """Take in a snapshot; one that is no newer than the last is left out."""
        numbers = numbers_of(document)
        accepted = numbers.get("forebay_queue_accepted", _NO_NUMBERS)
        done = numbers.get("forebay_queue_done", _NO_NUMBERS)
        ready = numbers.get("forebay_queue_ready", _NO_NUMBERS)
        for gone in self._points.keys() - accepted.keys():
            del self._points[gone]
        for labels, count in accepted.items():
            queue, group = labels
            points = self._points.get((queue, group))
            if points is None:
                if len(self._points) >= QUEUES_MAX:
                    continue
                points = self._points[queue, group] = deque(maxlen=POINTS_MAX)
            point = _Point(document.taken_at, count, done.get(labels, 0.0), ready.get(labels, 0.0))
            _append(points, point)

    def rates(self, key: GroupKey) -> Rates | None:
        """How a group fares now; None before its second snapshot."""
        points = self._points.get(key)
        if points is None or len(points) < 2:  # noqa: PLR2004 - a rate is between two
            return None
        last = points[-1]
        first = next(point for point in points if last.at - point.at <= _WINDOW_SECONDS)
        if first is last:
            first = points[-2]
        drained = (first.ready - last.ready) / (last.at - first.at)
        return Rates(
            in_rate=_rate(first.accepted, last.accepted, last.at - first.at),
            out_rate=_rate(first.done, last.done, last.at - first.at),
            drain_seconds=0.0 if not last.ready else last.ready / drained if drained > 0 else None,
        )

    def plots(self) -> Mapping[GroupKey, Plot]:
        """The last minutes of all groups."""
        return {key: _plot(points) for key, points in self._points.items()}


def numbers_of(document: Document) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """The numbers of a document by family and labels."""
    return {family.name: dict(family.series) for family in document.families}


def _append(points: deque[_Point], point: _Point) -> None:
    if points and point.at <= points[-1].at:
        return
    if len(points) > 1 and points[-1].at - points[-2].at < STEP_SECONDS:
        points.pop()
    points.append(point)


def _plot(points: Sequence[_Point]) -> Plot:
    steps = list(pairwise(points))
    return Plot(
        at=[round(after.at, 3) for _, after in steps],
        in_rates=[_rate(before.accepted, after.accepted, after.at - before.at) for before, after in steps],
        out_rates=[_rate(before.done, after.done, after.at - before.at) for before, after in steps],
        ready=[after.ready for _, after in steps],
    )


def _rate(before: float, after: float, seconds: float) -> float:
    return round(max(0.0, after - before) / seconds, 3)
