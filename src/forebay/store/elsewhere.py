"""Leases that this process did not give out, as far as the log knows them. Pure functions.

A message is out with a worker when its claim is held and the log has a mark on it. Whoever holds the token of
the claim may settle it, so the token from the log is as good as the lease of the server that handed it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from forebay.log.values import Claim, Settlement
from forebay.model import bitmap
from forebay.store.unpacking import defer
from forebay.store.values import Ticket
from forebay.warm.values import Lease

ASKED_STEP: Final = 100
"""So many messages are asked for at once, since their blocks come along."""


def tickets_of(claims: Iterable[Claim], ids: Iterable[int], since: int, epoch: str) -> dict[int, Ticket]:
    """Tickets for those of the messages that are out since then, or for longer, in leases of that epoch."""
    asked = set(ids)
    found: dict[int, Ticket] = {}
    for claim in claims:
        if claim.start_time > since:  # it came back meanwhile: whoever has it now has another lease
            continue
        lease = _lease_of(claim, epoch)
        out = [claim.first + o for o in bitmap.indexes(bitmap.minus(claim.handed, claim.done))]
        found.update((task_id, Ticket(task_id, lease)) for task_id in out if task_id in asked)
    return found


def vouched_of(lease: Lease, claim: Claim | None, epoch: str) -> tuple[Lease, set[int]] | None:
    """A lease of another server as one of that epoch, and the offsets that are out; None where it is over.

    `claim` is what the log holds under the lease's token. A token can be guessed, and a time hardly.
    """
    if claim is None:
        return None
    told = lease.first, lease.count, lease.start_time
    if told != (claim.first, claim.count, claim.start_time):
        return None
    out = set(bitmap.indexes(bitmap.minus(claim.handed, claim.done)))
    return msgspec.structs.replace(_lease_of(claim, epoch), number=lease.number), out


def late_of(
    held: Mapping[Lease, Sequence[int]], claims: Iterable[Claim], gone: Collection[int]
) -> dict[Lease, list[int]]:
    """What of these leases is finished, given claims as they are now, and the tokens of those that are gone.

    By lease; the offsets in its claim.
    """
    done = {claim.token: set(bitmap.indexes(claim.done)) for claim in claims}
    late: dict[Lease, list[int]] = {}
    for lease, offsets in held.items():
        if lease.claim in gone:
            late[lease] = list(offsets)
        elif finished := done.get(lease.claim, set()).intersection(offsets):
            late[lease] = sorted(finished)
    return late


def rest_of(
    claims: Iterable[Claim], back: Mapping[str, tuple[int, int]], held: Mapping[Lease, Sequence[int]]
) -> list[Settlement]:
    """What of claims of an ordered queue goes back along: what is with nobody, or out past what goes back.

    `back` has the id of the first message that goes back of each partition, and when the partition may come
    again. It is on the shelf of the server that has the claim, which notices when it wants to hand it out, or
    is told of an outcome.
    """
    settled = {(lease.claim, o) for lease, offsets in held.items() for o in offsets}
    found = []
    for claim in claims:
        first, due_at = back[claim.block.partition or ""]
        handed = set(bitmap.indexes(claim.handed))
        left = bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))
        offsets = [
            o
            for o in left
            if (claim.token, o) not in settled and (o not in handed or claim.first + o > first)
        ]
        if offsets:
            deferred = tuple(defer(offsets, due_at, claim.attempts, claim.prev_start_time))
            found.append(claim.settle(deferred=deferred))
    return found


def without_body(claim: Claim) -> Claim:
    """A claim of which only the bitmaps are needed."""
    replace = msgspec.structs.replace
    return replace(claim, block=replace(claim.block, body=b""))


def _lease_of(claim: Claim, epoch: str) -> Lease:
    return Lease(
        claim.group, epoch, 0, claim.token, claim.first, claim.count, claim.attempts, claim.start_time,
        claim.prev_start_time, claim.block.partition,
    )  # fmt: skip
