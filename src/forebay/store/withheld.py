"""Messages of an ordered queue that come back, but only by way of the spool.

The log takes them for handed out until the spool has told it, so another server would be allowed to hand out
what comes after them. They stay on the shelf, out with nobody, until the log has heard of them.

Invariant: a message stands here once, with the lease that keeps it out now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from forebay.warm.values import Lease, Leased


class Withheld:
    """The leases that keep messages out, by claim and offset."""

    def __init__(self) -> None:
        self._leases: dict[tuple[int, int], Lease] = {}

    def __bool__(self) -> bool:
        return bool(self._leases)

    def add(self, leases: Mapping[Lease, Sequence[int]]) -> None:
        """Remember leases, with the offsets that they keep out."""
        self._leases.update(
            ((lease.claim, offset), lease) for lease, offsets in leases.items() for offset in offsets
        )

    def renew(self, expired: Iterable[Leased]) -> set[Lease]:
        """Remember the leases under which withheld messages were taken over; returns those leases."""
        known = {
            piece.lease: piece.offsets()
            for piece in expired
            if all((piece.lease.claim, offset) in self._leases for offset in piece.span())
        }
        self.add(known)
        return set(known)

    def wanted(self) -> dict[Lease, list[int]]:
        """All that is withheld, as offsets by lease."""
        wanted: dict[Lease, list[int]] = {}
        for (_, offset), lease in self._leases.items():
            wanted.setdefault(lease, []).append(offset)
        return wanted

    def forget(self, leases: Collection[Lease]) -> set[Lease]:
        """Forget leases; returns those that were known."""
        gone = {key: lease for key, lease in self._leases.items() if lease in leases}
        for key in gone:
            del self._leases[key]
        return set(gone.values())
