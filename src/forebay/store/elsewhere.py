"""Leases that this process did not give out, as far as the log knows them. Pure functions.

A message is out with a worker when its claim is held and the log has a mark on it. Whoever holds the token of
the claim may settle it, so the token from the log is as good as the lease of the server that handed it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def late_of(held: Mapping[Lease, Sequence[int]], claims: Iterable[Claim]) -> dict[Lease, list[int]]:
    """What the log doesn't hold for these leases any more, given all claims that it does; by lease."""
    by_token = {claim.token: claim for claim in claims}
    late: dict[Lease, list[int]] = {}
    for lease, offsets in held.items():
        claim = by_token.get(lease.claim)
        if claim is None or (claim.first, claim.count) != (lease.first, lease.count):
            late[lease] = list(offsets)
        elif gone := set(bitmap.indexes(claim.done)).intersection(offsets):
            late[lease] = sorted(gone)
    return late


def _lease_of(claim: Claim, epoch: str) -> Lease:
    return Lease(
        claim.group, epoch, 0, claim.token, claim.first, claim.count, claim.attempts, claim.start_time,
        claim.prev_start_time, claim.block.partition,
    )  # fmt: skip
