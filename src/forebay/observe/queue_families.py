"""The families of queues: the store counts them without looking at messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from forebay.log.values import GroupStats, QueueStats, Stats
from forebay.observe.document import SERIES_MAX, Family, snapshot_family
from forebay.store.hysteresis import Mode
from forebay.store.values import FlowStat, FlowStats, GroupState

__all__ = ["queue_families", "ready"]

T = TypeVar("T")

_SECOND: Final = 1_000_000


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
    _Column("forebay_queue_spooled", lambda s: s.spooled),
    _Column("forebay_queue_accepted_total", lambda s: s.accepted),
    _Column("forebay_queue_done_total", lambda s: s.done),
    _Column("forebay_queue_expired_total", lambda s: s.expired),
    _Column("forebay_queue_purged_total", lambda s: s.purged),
    _Column("forebay_queue_difference", lambda s: s.difference),
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

_WAITING: Final[tuple[_Column[FlowStat], ...]] = (
    _Column("forebay_queue_cold", lambda f: f.cold),
    _Column("forebay_queue_oldest_age_seconds", _since),
)

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
    return [
        *_families(_BOOKS, books, series_max),
        *_families(_SETTINGS, settings, series_max),
        *_families(_TIERS, tiers, series_max),
        *_families(_WAITING, waiting, series_max),
        *_families(_FLOWS, named, series_max),
    ]


def _sorted(rows: Iterable[tuple[tuple[str, ...], T]]) -> list[tuple[tuple[str, ...], T]]:
    return sorted(rows, key=itemgetter(0))


def _families(
    columns: Iterable[_Column[T]], rows: Sequence[tuple[tuple[str, ...], T]], series_max: int
) -> Iterator[Family]:
    for name, number in columns:
        series = [(key, float(value)) for key, row in rows if (value := number(row)) is not None]
        yield snapshot_family(name, series, series_max=series_max)
