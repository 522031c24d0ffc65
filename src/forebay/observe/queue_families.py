"""The families of queues: the store counts them without looking at messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from forebay.log.values import GroupStats, Stats
from forebay.observe.document import SERIES_MAX, Family, Kind, family
from forebay.store.hysteresis import Mode
from forebay.store.values import FlowStat, FlowStats, GroupState

__all__ = ["queue_families", "ready"]

T = TypeVar("T")

_SECOND: Final = 1_000_000
_GROUP: Final = ("queue", "group")
_FLOW: Final = ("queue", "group", "flow", "type", "action")


class _Column(NamedTuple, Generic[T]):
    """A family, and its number for one row; no number is no series."""

    name: str
    kind: Kind
    text: str
    number: Callable[[T], float | None]


def ready(stats: GroupStats) -> int:
    """Messages that can be taken now: in the log alone, on a shelf, or back and due."""
    return stats.ready + stats.held - stats.handed + stats.due


def _since(flow: FlowStat) -> float | None:
    return None if flow.oldest_at is None else flow.oldest_at / _SECOND


_BOOKS: Final[tuple[_Column[GroupStats], ...]] = (
    _Column("forebay_queue_ready", "gauge", "Messages that can be taken now.", ready),
    _Column("forebay_queue_leased", "gauge", "Messages that are out with workers.", lambda s: s.handed),
    _Column(
        "forebay_queue_delayed", "gauge", "Messages whose time is to come.",
        lambda s: s.delayed + s.deferred - s.due,
    ),
    _Column("forebay_queue_dead", "gauge", "Dead letters.", lambda s: s.dead),
    _Column(
        "forebay_queue_spooled", "gauge", "Messages on a server's own disk, on their way to the log.",
        lambda s: s.spooled,
    ),
    _Column("forebay_queue_accepted", "counter", "Messages that were accepted.", lambda s: s.accepted),
    _Column("forebay_queue_done", "counter", "Messages that are done.", lambda s: s.done),
    _Column(
        "forebay_queue_expired", "counter", "Messages that retention dropped before they were done.",
        lambda s: s.expired,
    ),
    _Column("forebay_queue_purged", "counter", "Messages that were purged or skipped.", lambda s: s.purged),
    _Column(
        "forebay_queue_difference", "gauge", "Accepted minus accounted for: anything but 0 is a loss.",
        lambda s: s.difference,
    ),
)  # fmt: skip

_TIERS: Final[tuple[_Column[GroupState], ...]] = (
    _Column("forebay_queue_warm", "gauge", "Messages in the warm tier.", lambda s: s.messages),
    _Column(
        "forebay_queue_warm_limit", "gauge", "Messages that the warm tier holds at most.",
        lambda s: s.messages_max,
    ),
    _Column("forebay_queue_warm_bytes", "gauge", "Bytes in the warm tier.", lambda s: s.bytes),
    _Column(
        "forebay_queue_warm_bytes_limit", "gauge", "Bytes that the warm tier holds at most.",
        lambda s: s.bytes_max,
    ),
    _Column(
        "forebay_queue_is_cold", "gauge", "1 while the warm tier has overflowed, and until it has drained.",
        lambda s: s.mode is Mode.COLD,
    ),
)  # fmt: skip

_WAITING: Final[tuple[_Column[FlowStat], ...]] = (
    _Column("forebay_queue_cold", "gauge", "Messages that wait in the log alone.", lambda f: f.cold),
    _Column(
        "forebay_queue_oldest_age_seconds", "age", "How long the oldest message that is ready has waited.",
        _since,
    ),
)  # fmt: skip

_FLOWS: Final[tuple[_Column[FlowStat], ...]] = (
    _Column("forebay_flow_warm", "gauge", "Messages of a flow in the warm tier.", lambda f: f.warm),
    _Column("forebay_flow_cold", "gauge", "Messages of a flow that wait in the log alone.", lambda f: f.cold),
    _Column(
        "forebay_flow_leased", "gauge", "Messages of a flow that are out with workers.", lambda f: f.taken
    ),
    _Column(
        "forebay_flow_oldest_age_seconds", "age",
        "How long the oldest message of a flow that is ready has waited.", _since,
    ),
)  # fmt: skip


def queue_families(stats: Stats, flows: FlowStats, *, series_max: int = SERIES_MAX) -> list[Family]:
    """The families of all queues; both are of the same queues."""
    books = [
        ((queue.queue.name, group.group.name), group) for queue in stats.queues for group in queue.groups
    ]
    tiers = [((state.queue, state.group), state) for state in flows.groups]
    waiting = [((flow.queue, flow.group), flow) for flow in flows.flows]
    named = [
        ((flow.queue, flow.group, flow.flow.name, flow.flow.type, flow.flow.action), flow)
        for flow in flows.flows
    ]
    return [
        *_families(_BOOKS, _GROUP, books, series_max),
        *_families(_TIERS, _GROUP, tiers, series_max),
        *_families(_WAITING, _GROUP, waiting, series_max),
        *_families(_FLOWS, _FLOW, named, series_max),
    ]


def _families(
    columns: Iterable[_Column[T]],
    labels: tuple[str, ...],
    rows: Sequence[tuple[tuple[str, ...], T]],
    series_max: int,
) -> Iterator[Family]:
    for name, kind, text, number in columns:
        series = [(key, float(value)) for key, row in rows if (value := number(row)) is not None]
        yield family(name, kind, text, labels, series, series_max=series_max)
