"""What workers say about their tasks, as settlements for the log. Pure functions.

The table of attempts: a task that comes back, by retry or because its lease expired, counts one attempt
more, and its start time becomes the previous one. One that was never handed out, or is released or postponed
unused, comes back as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from forebay.log.values import Death, Deferral, QueueSettings, Settlement
from forebay.model import Message, bitmap
from forebay.store.giving_up import NO_ANSWER, is_last, last_words, without_start
from forebay.store.tickets import check_code, check_lease, check_reason, check_time, leases_of, offsets_of
from forebay.store.unpacking import defer
from forebay.store.values import Burial, Retry, Task, Ticket
from forebay.warm.values import Lease, Leased


@dataclass(slots=True)
class Verdict:
    """What became of tasks of one lease, by their offsets in the claim."""

    done: list[int] = field(default_factory=list)
    retried: dict[int, Retry] = field(default_factory=dict)
    """Back at a time."""
    released: list[int] = field(default_factory=list)
    """Back unused."""
    dead: dict[int, tuple[str, Task | Ticket]] = field(default_factory=dict)
    """Given up for a reason."""
    worker: str = ""
    postponed: dict[int, Retry] = field(default_factory=dict)
    """Back unused at a time."""
    code: int = 0

    def back(self, lease: Lease, settings: QueueSettings) -> list[int]:
        """The tasks that come back; a retry for the last time is a death."""
        retried = () if is_last(lease.attempts, settings) else self.retried
        return [*retried, *self.released, *self.postponed]

    def offsets(self) -> list[int]:
        """All tasks that it is about."""
        if not (self.retried or self.released or self.postponed or self.dead):
            return self.done
        return [*self.done, *self.retried, *self.released, *self.postponed, *self.dead]

    def without_released(self) -> Verdict:
        """The verdict on the others."""
        return replace(self, released=[])

    def only(self, offsets: Collection[int]) -> Verdict:
        """The verdict on some of the tasks."""
        kept = set(offsets)
        if len(kept) == len(self.offsets()):
            return self
        return replace(
            self,
            done=[o for o in self.done if o in kept],
            retried={o: v for o, v in self.retried.items() if o in kept},
            released=[o for o in self.released if o in kept],
            dead={o: v for o, v in self.dead.items() if o in kept},
            postponed={o: v for o, v in self.postponed.items() if o in kept},
        )


class Ballot:
    """Verdicts on tasks, by group and lease."""

    def __init__(self, worker: str, code: int = 0) -> None:
        self.verdicts: dict[int, dict[Lease, Verdict]] = {}
        self._worker = worker
        self._code = check_code(code)

    def of(self, lease: Lease) -> Verdict:
        """The verdict on the tasks of a lease; Rejected unless it can be one that was given out."""
        mine = self.verdicts.setdefault(lease.group, {})
        if lease not in mine:
            check_lease(lease)
            mine[lease] = Verdict(worker=self._worker, code=self._code)
        return mine[lease]

    def done(self, tasks: Iterable[Task | Ticket]) -> None:
        """Count tasks as done; those of one lease mostly come together."""
        for verdict, offsets in self._by_lease(tasks):
            verdict.done += offsets

    def release(self, tasks: Iterable[Task | Ticket]) -> None:
        """Count tasks as given back unused."""
        for verdict, offsets in self._by_lease(tasks):
            verdict.released += offsets

    def retry(self, item: Retry) -> None:
        """Count a task as coming back at a time."""
        check_time(item.next_start_time, "the start time of a retry")
        check_reason(item.reason)
        ((verdict, (offset,)),) = self._by_lease([item.task])
        (verdict.retried if item.counts else verdict.postponed)[offset] = item

    def bury(self, task: Task | Ticket | Burial, reason: str = "") -> None:
        """Count a task as dead, for this reason unless it brings its own."""
        if isinstance(task, Burial):
            reason, task = task.reason, task.task
        check_reason(reason)
        ((verdict, (offset,)),) = self._by_lease([task])
        verdict.dead[offset] = (reason, task)

    def _by_lease(self, tasks: Iterable[Task | Ticket]) -> Iterator[tuple[Verdict, list[int]]]:
        listed = list(tasks)
        leases = leases_of(listed)
        if listed and leases.count(leases[0]) == len(leases):
            yield self.of(leases[0]), offsets_of(leases[0], listed)
            return
        for task, lease in zip(listed, leases, strict=True):
            yield self.of(lease), offsets_of(lease, [task])


def nameless(lease: Lease, verdict: Verdict, settings: QueueSettings) -> list[int]:
    """The offsets of messages that die by a verdict, and that the caller has not brought."""
    dying = [(o, task) for o, (_, task) in verdict.dead.items()]
    if verdict.retried and is_last(lease.attempts, settings):
        dying += [(o, item.task) for o, item in verdict.retried.items()]
    return [o for o, task in dying if isinstance(task, Ticket)]


def overtaking(verdicts: Mapping[Lease, Verdict], settings: QueueSettings) -> dict[Lease, list[int]]:
    """Offsets of tasks that end by verdicts of one call, past others of their partition that come back by it.

    To let them end would be to let them overtake: their leases end instead, as if they were settled later.
    """
    back = {lease: offsets for lease, v in verdicts.items() if (offsets := v.back(lease, settings))}
    first: dict[str, int] = {}
    for lease, offsets in back.items():
        partition, message_id = lease.partition or "", lease.first + min(offsets)
        first[partition] = min(message_id, first.get(partition, message_id))
    found: dict[Lease, list[int]] = {}
    for lease, verdict in verdicts.items() if first else ():
        held_up, comes = first.get(lease.partition or ""), set(back.get(lease, ()))
        late = [
            o
            for o in verdict.offsets()
            if o not in comes and held_up is not None and lease.first + o > held_up
        ]
        if late:
            found[lease] = late
    return found


def settlement_of(
    lease: Lease,
    verdict: Verdict,
    now: int,
    settings: QueueSettings,
    messages: Mapping[int, Message] | None = None,
) -> Settlement:
    """What the log is told of a verdict; `messages` has those that are `nameless`, by offset.

    Without them it is told later, when they can be looked up.
    """

    def death(offset: int, reason: str, attempts: int, task: Task | Ticket) -> Death:
        message = task.message() if isinstance(task, Task) else (messages or {}).get(offset)
        return Death(offset, reason, attempts, message)

    dead = [death(o, reason, lease.attempts, task) for o, (reason, task) in verdict.dead.items()]
    deferred: list[Deferral] = []
    if verdict.retried and is_last(lease.attempts, settings):
        dead += [
            death(o, last_words(lease.attempts, item.reason), lease.attempts + 1, item.task)
            for o, item in verdict.retried.items()
        ]
    else:
        for (due_at, reason), offsets in _alike(verdict.retried).items():
            deferred.extend(defer(offsets, due_at, lease.attempts + 1, lease.start_time, reason))
    for (due_at, reason), offsets in _alike(verdict.postponed).items():
        deferred.extend(defer(offsets, due_at, lease.attempts, lease.prev_start_time, reason))
    deferred.extend(defer(sorted(set(verdict.released)), now, lease.attempts, lease.prev_start_time))
    done = b""
    if verdict.done:
        is_all = len(verdict.done) == lease.count == len(set(verdict.done))
        done = bitmap.full(lease.count) if is_all else bitmap.of(verdict.done, lease.count)
    return _settlement(lease, done, deferred, dead, verdict.worker, code=verdict.code)


def expiry_of(piece: Leased, now: int, settings: QueueSettings) -> Settlement:
    """What the log is told when a lease has expired; a lease of nobody is no attempt."""
    lease, parcel, offsets = piece.lease, piece.parcel, piece.offsets()
    if not piece.worker:
        return withdrawal_of(piece, now)
    if is_last(lease.attempts, settings):
        assert parcel.block is not None, "a lease without bodies"
        reason = last_words(lease.attempts, NO_ANSWER)
        dead = [
            Death(o, reason, lease.attempts + 1, without_start(parcel.block.message(place)))
            for o, place in zip(offsets, piece.places, strict=True)
        ]
        return _settlement(lease, b"", (), dead, piece.worker)
    deferred = defer(offsets, now, lease.attempts + 1, lease.start_time, NO_ANSWER)
    return _settlement(lease, b"", deferred, (), piece.worker)


def singly(settlement: Settlement) -> list[Settlement]:
    """The same, message by message: where some were settled before, the others still can be."""
    bare = msgspec.structs.replace(settlement, done=b"", deferred=(), dead=())
    replace = msgspec.structs.replace
    return [
        *(replace(bare, done=bitmap.of([o], bare.count)) for o in bitmap.indexes(settlement.done)),
        *(
            replace(bare, deferred=(replace(d, offset=o, count=1),))
            for d in settlement.deferred
            for o in range(d.offset, d.offset + d.count)
        ),
        *(replace(bare, dead=(death,)) for death in settlement.dead),
    ]


def deferred_of(lease: Lease, settlement: Settlement, *, counts: bool) -> list[int]:
    """The offsets of messages that a settlement sends back, with an attempt more or without."""
    return [
        offset
        for deferral in settlement.deferred
        if (deferral.attempts > lease.attempts) is counts
        for offset in range(deferral.offset, deferral.offset + deferral.count)
    ]


def withdrawal_of(piece: Leased, due_at: int) -> Settlement:
    """What the log is told of messages that go back without having been handed out."""
    lease = piece.lease
    deferred = defer(piece.offsets(), due_at, lease.attempts, piece.parcel.prev_start_time)
    return _settlement(lease, b"", deferred, (), "")


def _settlement(
    lease: Lease,
    done: bytes,
    deferred: Iterable[Deferral],
    dead: Iterable[Death],
    worker: str,
    *,
    code: int = 0,
) -> Settlement:
    return Settlement(
        group=lease.group,
        token=lease.claim,
        first=lease.first,
        count=lease.count,
        done=done,
        deferred=tuple(deferred),
        dead=tuple(dead),
        worker=worker,
        code=code,
    )


def _alike(retries: Mapping[int, Retry]) -> dict[tuple[int, str], list[int]]:
    """Offsets by time and reason, ascending."""
    grouped: dict[tuple[int, str], list[int]] = {}
    for offset in sorted(retries):
        item = retries[offset]
        grouped.setdefault((item.next_start_time, item.reason), []).append(offset)
    return grouped
