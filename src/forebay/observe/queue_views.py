"""What people look at: queues, flows, running tasks; pure functions on snapshots and the store's answers.

Some keep the names of the queue metrics that DeltaFi's users know: a queue is an action class, a message id a
`did`, and times are written as RFC 3339. The others are as all of `/v1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from forebay.model import Flow
from forebay.observe.document import Document
from forebay.observe.history import History, numbers_of
from forebay.store.values import Running
from forebay.wire.forms import Micros

__all__ = [
    "UNKNOWN_PLUGIN", "ColdQueue", "DetailedQueues", "FlowView", "LedgerView", "PartProblem", "QueueView",
    "RunningTask", "RunningTasks", "WarmQueue", "action_plugins", "detailed_queues", "folded_problems",
    "leased_in", "ledger_view", "omitted_groups", "queue_views", "running_tasks",
]  # fmt: skip

UNKNOWN_PLUGIN: Final = "unknown"
DIFFERENCES_MAX: Final = 100
DIDS_OF_TASK_MAX: Final = 1_000
DIDS_MAX: Final = 10_000
"""Ids in one answer: it stays a few hundred kilobytes."""
_NO_NUMBERS: Final[Mapping[tuple[str, ...], float]] = {}
_SECOND: Final = 1_000_000


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What all views have in common."""


class CamelView(View, frozen=True, kw_only=True, rename="camel"):
    """Those with the names that DeltaFi's users know."""


class PartProblem(View, frozen=True, kw_only=True):
    """A part that is missing or old, and why; the rest is whole."""

    part: str
    reason: str


class ColdQueue(CamelView, frozen=True, kw_only=True, rename="camel"):
    """Messages of one action of a flow that wait in the log alone."""

    action_class: str
    """The queue."""
    flow_name: str
    flow_type: str
    action_name: str
    count: int
    oldest_queued_at: datetime | None
    """Since when the oldest has been ready."""
    group: str
    """The consumer group that they wait for."""


class WarmQueue(ColdQueue, frozen=True, kw_only=True, rename="camel"):
    """Messages of one action of a flow that wait in the warm tier."""

    oldest_did: str | None = None
    """The id of the oldest, where this server has it, and it is among the next 100 of its queue."""


class DetailedQueues(CamelView, frozen=True, kw_only=True, rename="camel"):
    """What waits, by queue, flow and action."""

    warm_queues: Sequence[WarmQueue]
    cold_queues: Sequence[ColdQueue]
    timestamp: datetime
    """The time of this answer."""
    data_timestamp: datetime | None
    """To when it was counted."""
    stale: bool
    """Whether that is longer ago than it may be."""
    problems: Sequence[PartProblem] = ()


class RunningTask(CamelView, frozen=True, kw_only=True, rename="camel"):
    """Tasks that one worker took together and still has."""

    action_class: str
    """The queue."""
    action_name: str
    did: str
    """The id of the first of them."""
    dids: Sequence[str]
    """The ids of all of them, first ones first: up to 1,000, and up to 10,000 in an answer."""
    start_time: datetime
    running_for_ms: int
    app_name: str
    """The worker."""
    flow_name: str
    flow_type: str
    group: str
    count: int
    """How many they are."""
    attempts: int
    """How often they had come back before."""
    deadline: datetime
    """When they go to another worker, unless this one asks for more time."""


class RunningTasks(CamelView, frozen=True, kw_only=True, rename="camel"):
    """Who works on what, longest first."""

    tasks: Sequence[RunningTask]
    heartbeat_threshold_ms: int
    """How long a worker may say nothing before its tasks go to another, where its queue says nothing else."""
    timestamp: datetime
    problems: Sequence[PartProblem] = ()


class FlowView(View, frozen=True, kw_only=True):
    """One action of a flow in a queue."""

    flow: str
    type: str
    action: str
    warm: int
    cold: int
    leased: int
    oldest_at: Micros | None


class QueueView(View, frozen=True, kw_only=True):
    """A group of a queue, with its flows."""

    queue: str
    group: str
    plugin: str
    mode: Literal["warm", "cold", "paused", "idle"]
    ready: int
    leased: int
    delayed: int
    dead: int
    warm: int
    cold: int
    held: int
    """Messages in the warm tier, those included that are out with workers."""
    held_max: int
    accepted: int
    done: int
    oldest_at: Micros | None
    in_rate: float | None
    out_rate: float | None
    drain_seconds: float | None
    flows: Sequence[FlowView]


class Difference(View, frozen=True, kw_only=True):
    """A group whose books don't add up."""

    queue: str
    group: str
    difference: int


class LedgerView(View, frozen=True, kw_only=True):
    """The books of all groups together."""

    accepted: int
    done: int
    difference: int
    """What is missing in all, whichever way."""
    differences: Sequence[Difference]
    """The groups that it is missing in, the worst ones first."""
    spooled: int = 0
    """Of what was accepted: messages on this server's disk, on their way to the log."""


def time_of(seconds: float | None) -> datetime | None:
    """A time in seconds since 1970 as a datetime."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def micros_of(seconds: float | None) -> int | None:
    """Likewise in microseconds."""
    return None if seconds is None else round(seconds * _SECOND)


def detailed_queues(
    document: Document | None,
    *,
    now: float,
    stale: bool,
    oldest: Mapping[tuple[str, str, Flow], int],
    problems: Sequence[PartProblem] = (),
) -> DetailedQueues:
    """What waits, by queue, flow and action; `oldest` has ids of messages in the warm tier."""
    numbers = {} if document is None else numbers_of(document)
    since = numbers.get("forebay_flow_oldest_age_seconds", _NO_NUMBERS)
    cold_since = numbers.get("forebay_flow_cold_oldest_age_seconds", _NO_NUMBERS)
    warm = [
        WarmQueue(
            **_seed_names(labels, count, since.get(labels)),
            oldest_did=_text(oldest.get((labels[0], labels[1], Flow(*labels[2:])))),
        )
        for labels, count in numbers.get("forebay_flow_warm", _NO_NUMBERS).items()
        if count
    ]
    cold = [
        ColdQueue(**_seed_names(labels, count, cold_since.get(labels, since.get(labels))))
        for labels, count in numbers.get("forebay_flow_cold", _NO_NUMBERS).items()
        if count
    ]
    at = None if document is None else time_of(document.taken_at)
    folded = [] if document is None else folded_problems(document)
    return DetailedQueues(
        warm_queues=warm,
        cold_queues=cold,
        timestamp=datetime.fromtimestamp(now, UTC),
        data_timestamp=at,
        stale=stale,
        problems=[*problems, *folded],
    )


def action_plugins(document: Document | None, plugins: Mapping[str, str]) -> dict[str, str]:
    """The plugin of each queue, as far as it is known."""
    queues = (
        {}
        if document is None
        else numbers_of(document, {"forebay_queue_accepted"}).get("forebay_queue_accepted", _NO_NUMBERS)
    )
    names = {labels[0] for labels in queues}
    return {name: plugins.get(name, UNKNOWN_PLUGIN) for name in sorted(names | plugins.keys())}


def running_tasks(
    running: Sequence[Running],
    *,
    now: float,
    heartbeat_seconds: float,
    problems: Sequence[PartProblem] = (),
) -> RunningTasks:
    """Who works on what. A task that was begun by a clock ahead of ours has been running for no time."""
    left = DIDS_MAX
    dids = list[list[str]]()
    for piece in running:
        some = piece.ids[: min(DIDS_OF_TASK_MAX, left)]
        left -= len(some)
        dids.append([str(id) for id in some])
    return RunningTasks(
        tasks=[
            RunningTask(
                action_class=piece.queue,
                action_name=piece.flow.action,
                did=str(piece.first),
                dids=its,
                start_time=datetime.fromtimestamp(piece.since / _SECOND, UTC),
                running_for_ms=max(0, round(now * 1000 - piece.since / 1000)),
                app_name=piece.worker,
                flow_name=piece.flow.name,
                flow_type=piece.flow.type,
                group=piece.group,
                count=piece.count,
                attempts=piece.attempts,
                deadline=datetime.fromtimestamp(piece.deadline / _SECOND, UTC),
            )
            for piece, its in zip(running, dids, strict=True)
        ],
        heartbeat_threshold_ms=round(heartbeat_seconds * 1000),
        timestamp=datetime.fromtimestamp(now, UTC),
        problems=problems,
    )


def queue_views(document: Document, plugins: Mapping[str, str], history: History) -> list[QueueView]:
    """All groups of all queues, those first in which most waits."""
    numbers = _Numbers(document)
    flows = numbers.flows()
    found = []
    for key in numbers.all("forebay_queue_accepted"):
        queue, group = key
        rates = history.rates((queue, group))
        its_flows = flows.get(key, ())
        view = QueueView(
            queue=queue,
            group=group,
            plugin=plugins.get(queue, UNKNOWN_PLUGIN),
            mode=numbers.mode(key),
            ready=numbers.count("forebay_queue_ready", key),
            leased=numbers.count("forebay_queue_leased", key),
            delayed=numbers.count("forebay_queue_delayed", key),
            dead=numbers.count("forebay_queue_dead", key),
            warm=numbers.warm(key, its_flows),
            cold=numbers.count("forebay_queue_cold", key),
            held=numbers.count("forebay_queue_warm", key),
            held_max=numbers.count("forebay_queue_warm_limit", key),
            accepted=numbers.count("forebay_queue_accepted", key),
            done=numbers.count("forebay_queue_done", key),
            oldest_at=micros_of(numbers.get("forebay_queue_oldest_age_seconds", key)),
            in_rate=None if rates is None else rates.in_rate,
            out_rate=None if rates is None else rates.out_rate,
            drain_seconds=None if rates is None else rates.drain_seconds,
            flows=its_flows,
        )
        found.append(view)
    found.sort(key=lambda view: (-view.ready, view.queue, view.group))
    return found


def folded_problems(document: Document) -> list[PartProblem]:
    """What has no row of its own, since there is more of it than a snapshot has series."""
    folded = {family.name: family.folded for family in document.families}
    found = {
        "groups": ("other queues", folded.get("forebay_queue_accepted", 0)),
        "flows": ("other flows", folded.get("forebay_flow_warm", 0)),
    }
    return [
        PartProblem(part=part, reason=f"{count:,} {what} in which least waits are counted together")
        for what, (part, count) in found.items()
        if count
    ]


def leased_in(document: Document) -> int:
    """Messages that are out with workers."""
    leased = (each.series for each in document.families if each.name == "forebay_queue_leased")
    return int(sum(number for series in leased for _, number in series))


def omitted_groups(document: Document) -> int:
    """Groups that have no row, since the snapshot counts them together."""
    return next((each.folded for each in document.families if each.name == "forebay_queue_accepted"), 0)


def ledger_view(document: Document) -> LedgerView:
    """Whether what was accepted is all accounted for."""
    numbers = {family.name: dict(family.series) for family in document.families}  # with `other`: sums
    off = [
        Difference(queue=labels[0], group=labels[1], difference=int(number))
        for labels, number in numbers.get("forebay_queue_difference", _NO_NUMBERS).items()
        if number
    ]
    off.sort(key=lambda each: (-abs(each.difference), each.queue, each.group))
    return LedgerView(
        accepted=int(sum(numbers.get("forebay_queue_accepted", _NO_NUMBERS).values())),
        done=int(sum(numbers.get("forebay_queue_done", _NO_NUMBERS).values())),
        difference=sum(abs(each.difference) for each in off),
        differences=off[:DIFFERENCES_MAX],
    )


class _Numbers:
    """The numbers of a document."""

    def __init__(self, document: Document) -> None:
        self._families = numbers_of(document)
        self._has_all_flows = not any(f.folded for f in document.families if f.name == "forebay_flow_warm")

    def all(self, name: str) -> Mapping[tuple[str, ...], float]:
        return self._families.get(name, _NO_NUMBERS)

    def get(self, name: str, key: tuple[str, ...]) -> float | None:
        return self.all(name).get(key)

    def count(self, name: str, key: tuple[str, ...]) -> int:
        return int(self.all(name).get(key, 0))

    def mode(self, key: tuple[str, ...]) -> Literal["warm", "cold", "paused", "idle"]:
        if self.get("forebay_queue_is_paused", key[:1]):
            return "paused"
        if not any(self.get(f"forebay_queue_{name}", key) for name in ("ready", "leased", "warm")):
            return "idle"  # a queue that nobody has asked for is cold by its books, which alarms for nothing
        return "cold" if self.get("forebay_queue_is_cold", key) else "warm"

    def warm(self, key: tuple[str, ...], flows: Sequence[FlowView]) -> int:
        """What of a group waits in the warm tier: the rest of it, where some of its flows have no numbers."""
        if not self._has_all_flows:
            return max(0, self.count("forebay_queue_ready", key) - self.count("forebay_queue_cold", key))
        return sum(flow.warm for flow in flows)

    def flows(self) -> Mapping[tuple[str, ...], Sequence[FlowView]]:
        found: dict[tuple[str, ...], list[FlowView]] = {}
        for labels, warm in self.all("forebay_flow_warm").items():
            flow, kind, action = labels[2:]
            view = FlowView(
                flow=flow,
                type=kind,
                action=action,
                warm=int(warm),
                cold=self.count("forebay_flow_cold", labels),
                leased=self.count("forebay_flow_leased", labels),
                oldest_at=micros_of(self.get("forebay_flow_oldest_age_seconds", labels)),
            )
            found.setdefault(labels[:2], []).append(view)
        return found


def _seed_names(labels: tuple[str, ...], count: float, since: float | None) -> dict[str, Any]:
    queue, group, flow, kind, action = labels
    return {
        "action_class": queue,
        "group": group,
        "flow_name": flow,
        "flow_type": kind,
        "action_name": action,
        "count": int(count),
        "oldest_queued_at": time_of(since),
    }


def _text(id: int | None) -> str | None:
    return None if id is None else str(id)
