"""Leases that this process did not give out, as far as the log knows them. Pure functions.

A message is out with a worker when its claim is held and the log has a mark on it. Whoever holds the token of
the claim may settle it, so the token from the log is as good as the lease of the server that handed it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from forebay.log.values import Claim
from forebay.model import bitmap
from forebay.store.values import Ticket
from forebay.warm.values import Lease

ASKED_STEP: Final = 1_000
"""So many messages are asked for at once."""


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


def _lease_of(claim: Claim, epoch: str) -> Lease:
    return Lease(
        claim.group, epoch, 0, claim.token, claim.first, claim.count, claim.attempts, claim.start_time,
        claim.prev_start_time, claim.block.partition,
    )  # fmt: skip
