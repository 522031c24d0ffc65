"""The families of queues: the store counts them without looking at messages.

Invariant: beyond the cap, all families keep the same groups and the same flows, so that their numbers can be
put side by side: groups whose books are off, then those in which most is ready. The others are counted in
`other`, where differences add up whichever way they go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from forebay.log.values import GroupStats, QueueStats, Stats
from forebay.observe.document import OTHER, SERIES_MAX, Family, snapshot_family
from forebay.observe.metric_table import TABLE
from forebay.store.hysteresis import Mode
from forebay.store.values import FlowStat, FlowStats, GroupState

__all__ = ["queue_families", "ready"]

T = TypeVar("T")
_Key: TypeAlias = tuple[str, ...]
"""The values of labels."""

_SECOND: Final = 1_000_000
_DIFFERENCE: Final = "forebay_queue_difference"


class _Column(NamedTuple, Generic[T]):
    """A metric of the table, and its number for one row; no number is no series."""

    name: str
    number: Callable[[T], float | None]


def ready(stats: GroupStats) -> int:
    """Messages that can be taken now: in the log alone, on a shelf, or back and due."""
    return stats.ready + stats.held - stats.handed + stats.due


def _since(flow: FlowStat) -> float | None:
    return None if flow.oldest_at is None else flow.oldest_at / _SECOND


_BOOKS: Final[tuple[_Column[GroupStats], ...]] = (
    _Column("forebay_queue_ready", ready),
    _Column("forebay_queue_leased", lambda s: s.handed),
    _Column("forebay_queue_delayed", lambda s: s.delayed + s.deferred - s.due),
    _Column("forebay_queue_dead", lambda s: s.dead),
    _Column("forebay_queue_accepted_total", lambda s: s.accepted),
    _Column("forebay_queue_done_total", lambda s: s.done),
    _Column("forebay_queue_expired_total", lambda s: s.expired),
    _Column("forebay_queue_purged_total", lambda s: s.purged),
    _Column(_DIFFERENCE, lambda s: s.difference),
)

_SETTINGS: Final[tuple[_Column[QueueStats], ...]] = (
    _Column("forebay_queue_is_paused", lambda s: s.queue.settings.paused),
)

_TIERS: Final[tuple[_Column[GroupState], ...]] = (
    _Column("forebay_queue_warm", lambda s: s.messages),
    _Column("forebay_queue_warm_limit", lambda s: s.messages_max),
    _Column("forebay_queue_warm_bytes", lambda s: s.bytes),
    _Column("forebay_queue_warm_limit_bytes", lambda s: s.bytes_max),
    _Column("forebay_queue_is_cold", lambda s: s.mode is Mode.COLD),
)

_WAITING: Final[tuple[_Column[FlowStat], ...]] = (_Column("forebay_queue_oldest_age_seconds", _since),)

_FLOWS: Final[tuple[_Column[FlowStat], ...]] = (
    _Column("forebay_flow_warm", lambda f: f.warm),
    _Column("forebay_flow_cold", lambda f: f.cold),
    _Column("forebay_flow_leased", lambda f: f.taken),
    _Column("forebay_flow_oldest_age_seconds", _since),
    _Column(
        "forebay_flow_cold_oldest_age_seconds",
        lambda f: None if f.oldest_cold_at is None else f.oldest_cold_at / _SECOND,
    ),
)


def queue_families(stats: Stats, flows: FlowStats, *, series_max: int = SERIES_MAX) -> list[Family]:
    """The families of all queues; both are of the same queues. Takes long where these are many."""
    # Every family is sorted by its labels: rows that are sorted already make it quick.
    books = _sorted(
        ((queue.queue.name, group.group.name), group) for queue in stats.queues for group in queue.groups
    )
    settings = _sorted(((queue.queue.name,), queue) for queue in stats.queues)
    tiers = _sorted(((state.queue, state.group), state) for state in flows.groups)
    waiting = _sorted(((flow.queue, flow.group), flow) for flow in flows.flows)
    named = _sorted(
        ((flow.queue, flow.group, flow.flow.name, flow.flow.type, flow.flow.action), flow)
        for flow in flows.flows
    )
    cold = [(key, 0.0) for key, _ in tiers] + [(key, float(flow.cold)) for key, flow in waiting]
    groups = _kept_groups(books, series_max)
    queues = None if groups is None else {key[:1] for key in groups}
    return [
        *_families(_BOOKS, books, groups),
        *_families(_SETTINGS, settings, queues),
        *_families(_TIERS, tiers, groups),
        _family("forebay_queue_cold", cold, groups),
        *_families(_WAITING, waiting, groups),
        *_families(_FLOWS, named, _kept_flows(named, groups, series_max)),
    ]


def _sorted(rows: Iterable[tuple[_Key, T]]) -> list[tuple[_Key, T]]:
    return sorted(rows, key=itemgetter(0))


def _kept_groups(books: Sequence[tuple[_Key, GroupStats]], series_max: int) -> Collection[_Key] | None:
    """The groups that have series of their own; None for all."""
    if len(books) <= series_max:
        return None
    worst = nsmallest(
        series_max - 1, books, key=lambda row: (-abs(row[1].difference), -ready(row[1]), row[0])
    )
    return {key for key, _ in worst} - {(OTHER, OTHER)}


def _kept_flows(
    named: Sequence[tuple[_Key, FlowStat]], groups: Collection[_Key] | None, series_max: int
) -> Collection[_Key] | None:
    """Likewise the flows, all of them of groups that are kept."""
    if groups is None and len(named) <= series_max:
        return None
    known = [row for row in named if groups is None or row[0][:2] in groups]
    most = nsmallest(series_max - 1, known, key=lambda row: (-row[1].warm - row[1].cold, row[0]))
    return {key for key, _ in most} - {(OTHER,) * 5}


def _families(
    columns: Iterable[_Column[T]], rows: Sequence[tuple[_Key, T]], kept: Collection[_Key] | None
) -> Iterator[Family]:
    for column in columns:
        series = [(key, float(value)) for key, row in rows if (value := column.number(row)) is not None]
        yield _family(column.name, series, kept)


def _family(name: str, series: Iterable[tuple[_Key, float]], kept: Collection[_Key] | None) -> Family:
    """A family in which those that aren't kept are one series."""
    if kept is None:
        return snapshot_family(name, series)
    size, folded, found = len(TABLE[name].labels), set[_Key](), list[tuple[_Key, float]]()
    for key, number in series:
        if key in kept:
            found.append((key, number))
        else:
            folded.add(key)
            found.append(((OTHER,) * size, abs(number) if name == _DIFFERENCE else number))
    return msgspec.structs.replace(snapshot_family(name, found), folded=len(folded))
