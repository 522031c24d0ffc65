"""The whole path of one message, told from what the log found and what is out with workers.

`tell` is a pure function; `look` does the reading: one call of the log, and for each group that holds the
message one look at its shelf, which costs no more than the shelf has room for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from forebay.log.finding import has
from forebay.log.seam import Log
from forebay.log.values import Found, Group, OpenClaim, Outcome, Queue, Standing, StoredBlock
from forebay.model import Corrupt, Message, Rejected, UnknownQueue, decode, sequence_of, unpack
from forebay.store.values import Attempt, BlockPlace, GroupPlace, Whereabouts
from forebay.warm.values import Leased

Running = Callable[[Queue, Group], Awaitable[Sequence[Leased]]]
"""Says all that is out with workers of a group, as far as this process can know."""


async def look(log: Log, running: Running, message_id: int) -> Whereabouts:
    """Find a message."""
    unpack(message_id)
    try:
        found = await log.find(message_id)
    except UnknownQueue as error:
        text = f"message id {message_id} is of a queue that isn't there"
        raise UnknownQueue(text, hint="it was deleted, or the id is of another store") from error
    out: dict[int, Leased] = {}
    for stands in found.standings:
        if stands.claim is not None and stands.claim.owner is not None:
            leases = await running(found.queue, stands.group)
            out.update((stands.group.number, lease) for lease in leases if is_of(lease, message_id))
    return tell(message_id, found, out)


def is_of(lease: Leased, message_id: int) -> bool:
    """Whether a message is among those of a lease."""
    return message_id - lease.parcel.first in lease.span()


def tell(message_id: int, found: Found, out: Mapping[int, Leased]) -> Whereabouts:
    """Say where a message is; `out` has its lease by the group's number. Rejected when it isn't there yet."""
    sequence = sequence_of(message_id)
    if sequence >= found.next:
        text = f"queue {found.queue.name!r} has given out no message {sequence} yet (id {message_id})"
        raise Rejected(text, hint=f"its newest is {found.next - 1}" if found.next > 1 else "it is empty")
    message, created_at = _message_of(message_id, found)
    return Whereabouts(
        id=message_id,
        queue=found.queue.name,
        sequence=sequence,
        block=None if found.block is None else _block(found.block, created_at),
        message=message,
        groups=[
            _group(message_id, stands, found, message, out.get(stands.group.number))
            for stands in found.standings
        ],
    )


def _message_of(message_id: int, found: Found) -> tuple[Message | None, int | None]:
    """The message and when its block was made, from the block, or else the copy of a dead letter."""
    try:
        if found.block is not None:
            block = found.block.decode(found.queue.name)
            return block.message(message_id - found.block.first), found.block.accepted_at
        for stands in found.standings:
            if stands.letter is not None:
                return decode(stands.letter.letter.body).message(0), None
    except Corrupt:
        return None, None
    return None, None


def _block(block: StoredBlock, created_at: int | None) -> BlockPlace:
    return BlockPlace(
        id=block.id.hex(),
        first=block.first,
        count=block.count,
        created_at=created_at,
        appended_at=block.appended_at,
        bytes=len(block.body),
    )


def _group(
    message_id: int, stands: Standing, found: Found, message: Message | None, lease: Leased | None
) -> GroupPlace:
    history, claim = _history(message_id, stands), stands.claim
    state, due_at = state_of(message_id, stands, found, message), None
    if state == "warm" and lease is not None:
        state = "leased"  # the log is about to be told
    if state == "delayed":
        due_at = claim.due_at if claim is not None else None if message is None else message.start_time
    if state != "leased":
        lease = None
    return GroupPlace(
        group=stands.group.name,
        state=state,
        attempts=claim.attempts if claim is not None else history[-1].attempts if history else 0,
        owner=None if claim is None else claim.owner,
        worker=None if lease is None else lease.worker,
        since=None if lease is None else lease.since,
        deadline=None if lease is None else lease.deadline,
        due_at=due_at,
        history=history,
    )


def state_of(message_id: int, stands: Standing, found: Found, message: Message | None) -> str:
    """Where a message is for a group, in the words of `GroupPlace.state`, as far as the log knows it."""
    is_known = stands.claim is not None or stands.letter is not None or bool(stands.outcomes)
    if sequence_of(message_id) < stands.group.start and not is_known:
        return "skipped"  # a group that has sought may have seen what lies before its start
    if not stands.claimed:
        is_delayed = message is not None and (message.start_time or 0) > found.at
        return "delayed" if is_delayed else "cold"
    if stands.claim is None:
        return _finished(message_id, stands, is_kept=found.block is not None)
    if found.block is None and stands.letter is None:
        return "expired"  # it still waits, for a block that is gone
    return _open(stands.claim, found.at)


def _open(claim: OpenClaim, now: int) -> str:
    """Where a message is that is claimed and not finished."""
    if claim.owner is not None:
        return "leased" if claim.handed else "warm"
    return "delayed" if claim.due_at > now else "cold"


def _finished(message_id: int, stands: Standing, *, is_kept: bool) -> str:
    """How a message ended; `is_kept` says whether its block still is."""
    if stands.letter is not None and stands.letter.state != "redriven":
        return stands.letter.state
    if stands.outcomes:
        return _last(message_id, stands.outcomes[-1], is_kept=is_kept)
    if stands.corrupt:
        return "corrupt"
    return "skipped" if is_kept else "dropped"


def _last(message_id: int, outcome: Outcome, *, is_kept: bool) -> str:
    """How a message ended, from the last that was said of it."""
    offset = message_id - outcome.first
    if has(outcome.done, offset):
        return "done"
    if any(death[0] == offset for death in outcome.dead):
        return "purged"  # its letter is no longer kept
    if has(outcome.expired, offset) or not is_kept:
        return "expired"
    return "skipped"  # it was to come back, and the group went on without it


def _history(message_id: int, stands: Standing) -> list[Attempt]:
    """What the outcome log says, and what became of the letter, oldest first."""
    told: list[Attempt] = []
    attempts = 0
    for outcome in stands.outcomes:
        told.append(_attempt(message_id - outcome.first, outcome, attempts))
        attempts = 0 if told[-1].outcome == "dead" else told[-1].attempts
    if (kept := stands.letter) is None:
        return told
    letter = kept.letter
    if not any(one.outcome == "dead" for one in told):  # the letter outlives the outcome log
        died = Attempt(
            at=letter.died_at, outcome="dead", worker="", attempts=letter.attempts, reason=letter.reason
        )
        told.insert(sum(one.at < died.at for one in told), died)
    if kept.state != "dead":
        changed = Attempt(at=kept.changed_at, outcome=kept.state, worker="", attempts=0)
        before = [i for i, one in enumerate(told) if one.at < changed.at or one.outcome == "dead"]
        told.insert(before[-1] + 1, changed)
    return told


def _attempt(offset: int, outcome: Outcome, attempts: int) -> Attempt:
    """One entry, of a message that had come back so often before it."""
    at, worker, code = outcome.at, outcome.worker, outcome.code
    for place, reason, count in outcome.dead:
        if place == offset:
            return Attempt(at=at, outcome="dead", worker=worker, attempts=count, reason=reason, code=code)
    for d in outcome.deferred:
        if d.offset <= offset < d.offset + d.count:
            kind = "retried" if d.attempts > attempts else "delayed" if d.due_at > at else "released"
            return Attempt(
                at=at,
                outcome=kind,
                worker=worker,
                attempts=d.attempts,
                due_at=d.due_at,
                reason=d.reason or None,
                code=code,
            )
    kind = "done" if has(outcome.done, offset) else "expired"
    return Attempt(at=at, outcome=kind, worker=worker, attempts=attempts, code=code)
