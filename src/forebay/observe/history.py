"""The last minutes of each queue, from consecutive snapshots: what came in, what went out, what waits.

Invariants: a thread may add while others read; it keeps `POINTS_MAX` points of the `QUEUES_MAX` groups in
which most waits, and no more; a counter that goes back, since the log is another one, is no rate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from forebay.observe.document import OTHER, Document, Family

__all__ = ["POINTS_MAX", "QUEUES_MAX", "STEP_SECONDS", "GroupKey", "History", "Plot", "Rates", "numbers_of"]

STEP_SECONDS: Final = 5.0
"""Between two points; snapshots that come sooner replace the last one."""
POINTS_MAX: Final = 61
QUEUES_MAX: Final = 1_000
_WINDOW_SECONDS: Final = 30.0
"""Over how long a rate is measured that is shown as a number."""

GroupKey = tuple[str, str]
"""A queue and a group of it."""
_FAMILIES: Final = ("forebay_queue_accepted", "forebay_queue_done", "forebay_queue_ready")
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
        self._points: Mapping[GroupKey, tuple[_Point, ...]] = {}

    def add(self, document: Document) -> None:
        """Take in a snapshot; one that is no newer than the last is left out."""
        numbers = numbers_of(document, _FAMILIES)
        accepted, done, ready = (numbers.get(name, _NO_NUMBERS) for name in _FAMILIES)
        known = {(labels[0], labels[1]): count for labels, count in accepted.items()}
        self._points = {
            key: _with_point(
                self._points.get(key, ()),
                _Point(document.taken_at, known[key], done.get(key, 0.0), ready.get(key, 0.0)),
            )
            for key in nsmallest(QUEUES_MAX, known, key=lambda key: (-ready.get(key, 0.0), *key))
        }

    def rates(self, key: GroupKey) -> Rates | None:
        """How a group fares now; None before its second snapshot."""
        points = self._points.get(key)
        if points is None or len(points) < 2:  # noqa: PLR2004 - a rate is between two
            return None
        last = points[-1]
        first = next(point for point in points if last.at - point.at <= _WINDOW_SECONDS)
        if first is last:
            first = points[-2]
        seconds = last.at - first.at
        out_rate = _rate(first.done, last.done, seconds)
        # A backlog that shrinks though nothing is done has only been put off.
        drained = (first.ready - last.ready) / seconds if out_rate else 0.0
        return Rates(
            in_rate=_rate(first.accepted, last.accepted, seconds),
            out_rate=out_rate,
            drain_seconds=0.0 if not last.ready else last.ready / drained if drained > 0 else None,
        )

    def plots(self) -> Mapping[GroupKey, Plot]:
        """The last minutes of all groups."""
        return {key: _plot(points) for key, points in self._points.items()}


def numbers_of(
    document: Document, names: Collection[str] | None = None
) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """The numbers of a document by family and labels; of these families, or all.

    What is counted in `other` is nobody's own, and left out.
    """
    return {
        family.name: own_series(family)
        for family in document.families
        if names is None or family.name in names
    }


def own_series(family: Family) -> dict[tuple[str, ...], float]:
    """The series of a family, without the one in which it counts what is beyond its cap."""
    found = dict(family.series)
    if family.folded:
        found.pop((OTHER,) * len(family.labels), None)
    return found


def _with_point(points: tuple[_Point, ...], point: _Point) -> tuple[_Point, ...]:
    if points and point.at <= points[-1].at:
        return points
    if len(points) > 1 and points[-1].at - points[-2].at < STEP_SECONDS:
        points = points[:-1]
    return (*points, point)[-POINTS_MAX:]


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
