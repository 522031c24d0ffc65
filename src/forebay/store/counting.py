"""Where tasks are, for people and programs: by queue, by flow, and who works on what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Final

from forebay.log.seam import Log
from forebay.log.values import Group, GroupStats, Queue, Stats
from forebay.model import Flow, flow_reading
from forebay.store.hysteresis import Mode
from forebay.store.values import FlowStat, GroupState, QueueStat, Running, StoreStats
from forebay.store.window import Window
from forebay.warm.seam import Warm, WarmAway
from forebay.warm.values import Leased, Shelf, ShelfStats

_OLDEST_AMONG: Final = 100
OldestIds = dict[tuple[str, str, Flow], int]
"""By queue, group and flow."""


def count_tasks(stats: Stats) -> StoreStats:
    """Tasks by queue, from what the log knows."""
    found = {}
    for queue in stats.queues:
        groups = queue.groups
        ready = sum(g.ready + g.held - g.handed + g.due for g in groups)
        taken = sum(g.handed for g in groups)
        delayed = sum(g.deferred - g.due + g.delayed for g in groups)
        found[queue.queue.number] = QueueStat(
            queue_num=queue.queue.number,
            total_tasks=ready + taken + delayed,
            ready_tasks=ready,
            taken_tasks=taken,
            delayed_tasks=delayed,
        )
    return StoreStats(stats.at, found, stats.next)


@dataclass(slots=True)
class _Count:
    warm: int = 0
    cold: int = 0
    taken: int = 0
    oldest_at: int | None = None
    oldest_cold_at: int | None = None

    def wait(self, since: int | None) -> None:
        if since is not None:
            self.oldest_at = since if self.oldest_at is None else min(since, self.oldest_at)


async def count_flows(
    log: Log, queue: Queue, books: GroupStats, shelf: Shelf, window: Window | None, *, shared: Warm | None
) -> tuple[list[FlowStat], GroupState]:
    """One group: what its shelves hold, and what the log has beside, by flow; nothing moves in between.

    Where servers share no tier, what others hold in theirs is counted by the log's claims, as warm.
    Where nobody has asked this process for tasks, it sees what is on the shelf of a tier that servers share.
    What a group has that is itself a flow waits for that one, whatever its messages say.
    """
    counts: dict[Flow, _Count] = {}
    group = books.group
    reading = flow_reading(queue.settings.labels, group.name)
    held: Sequence[ShelfStats] = ()
    async with nullcontext() if window is None else window.still:
        if window is not None:
            held = await window.stats()
        elif shared is not None:
            with suppress(WarmAway):
                held = [await shared.stats(shelf)]
        besides = None if shared is not None else () if window is None else window.owners()
        waiting = await log.flows(group, besides=besides)
    for stats in held:
        for found in stats.flows:
            count = counts.setdefault(reading or found.flow, _Count())
            count.warm += found.ready
            count.cold += found.noted
            count.taken += found.leased
            count.wait(found.oldest_at)
    for each in waiting:
        count = counts.setdefault(reading or each.flow, _Count())
        count.wait(each.oldest_at)
        if each.is_held:
            count.warm += each.count
            continue
        count.cold += each.count
        count.oldest_cold_at = min(each.oldest_at, count.oldest_cold_at or each.oldest_at)
    messages = sum(stats.messages for stats in held)
    mode = Mode.COLD if window is None else window.mode
    if shared is None and window is None:
        messages = books.held
        if messages and all(each.is_held for each in waiting):
            mode = Mode.WARM
    elif shared is None and (others := sum(each.count for each in waiting if each.is_held)):
        taken = sum(found.leased for stats in held for found in stats.flows)
        messages += others + max(0, books.handed - taken)
    state = GroupState(
        queue=queue.name,
        group=group.name,
        mode=mode,
        messages=messages,
        messages_max=shelf.messages_max,
        bytes=sum(stats.bytes for stats in held),
        bytes_max=shelf.bytes_max,
    )
    return [
        FlowStat(
            queue=queue.name,
            group=group.name,
            flow=flow,
            warm=c.warm,
            cold=c.cold,
            taken=c.taken,
            oldest_at=c.oldest_at,
            oldest_cold_at=c.oldest_cold_at,
        )
        for flow, c in sorted(counts.items())
    ], state


def idle_group(queue: Queue, group: Group, shelf: Shelf) -> GroupState:
    """The state of a group that has nothing, of which no log and no tier has to be asked."""
    return GroupState(
        queue=queue.name,
        group=group.name,
        mode=Mode.COLD,
        messages=0,
        messages_max=shelf.messages_max,
        bytes=0,
        bytes_max=shelf.bytes_max,
    )


async def oldest_warm(queue: Queue, group: Group, tiers: Iterable[tuple[Warm, Shelf]]) -> OldestIds:
    """The oldest message of each flow that is ready in warm tiers, among the next few; moves nothing."""
    reading = flow_reading(queue.settings.labels, group.name)
    found: OldestIds = {}
    for warm, shelf in tiers:
        with suppress(WarmAway):
            for parcel, places in await warm.peek(shelf, _OLDEST_AMONG):
                key = (queue.name, group.name, reading or parcel.flow)
                id = parcel.first + parcel.offsets[places[0]]
                found[key] = min(id, found.get(key, id))
    return found


def list_running(out: Sequence[tuple[Queue, Group, Sequence[Leased]]], limit: int) -> list[Running]:
    """What is out with workers of groups, longest first."""
    found = [
        Running(
            queue=queue.name,
            group=group.name,
            flow=piece.parcel.flow,
            first=piece.parcel.first + piece.offsets()[0],
            count=len(piece.places),
            attempts=piece.parcel.attempts,
            worker=piece.worker,
            since=piece.since,
            deadline=piece.deadline,
            ids=_ids(piece),
        )
        for queue, group, pieces in out
        for piece in pieces
    ]
    found.sort(key=lambda r: (r.since, r.first))
    return found[:limit]


def _ids(piece: Leased) -> Sequence[int]:
    """The ids of what is out, as a range where they follow each other."""
    span, first = piece.span(), piece.parcel.first
    if isinstance(span, range):
        return range(first + span.start, first + span.stop, span.step)
    return [first + offset for offset in span]
