"""Plans: what settling tasks of one tier means for the log, and then for the shelf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forebay.log.values import Durable, Settlement
from forebay.store.settling import deferred_of, withdrawal_of
from forebay.store.tier import Tier
from forebay.warm.values import Lease, Leased


@dataclass(slots=True)
class Told:
    """What became of outcomes that somebody told."""

    lost: list[int] = field(default_factory=list)
    """The ids of tasks whose lease was lost, about which nothing was changed."""
    where: Durable = "log"
    """Where the other outcomes are: in the log only if all of them are."""

    def add(self, other: Told) -> None:
        """Count both."""
        self.lost += other.lost
        self.where = "log" if self.where == other.where == "log" else "spool"


@dataclass(slots=True)
class Plan:
    """What is said of tasks of one tier: the log is to be told, and then the shelf."""

    tier: Tier
    held: dict[Lease, list[int]]
    settlements: dict[Lease, Settlement]
    lost: Sequence[int] = ()
    """The ids of tasks that are no longer held: the plan is about the others."""
    rest: dict[Lease, tuple[Leased, int]] = field(default_factory=dict)
    """In an ordered queue what was withdrawn of the same partitions, and when it comes again."""
    ended: list[tuple[Leased, int]] = field(default_factory=list)
    """The same of what is out with workers, whose leases end with it; nothing has happened to them yet."""
    beyond: list[Settlement] = field(default_factory=list)
    """The same of what another server has on its shelf."""

    def returning(self) -> dict[Lease, int]:
        """The leases of which something goes back, each with the id of the first message that does."""
        return {
            lease: lease.first + min(deferral.offset for deferral in settlement.deferred)
            for lease, settlement in self.settlements.items()
            if settlement.deferred
        }

    def told(self) -> list[Settlement]:
        """All that the log is told."""
        along = [withdrawal_of(piece, due_at) for piece, due_at in self._along()]
        return [*self.settlements.values(), *along, *self.beyond]

    def gone(self) -> dict[Lease, list[int]]:
        """What is off the shelf afterwards."""
        gone = {lease: list(offsets) for lease, offsets in self.held.items()}
        for piece, _ in self._along():
            gone.setdefault(piece.lease, []).extend(piece.offsets())
        return gone

    def back(self, *, counts: bool) -> dict[Lease, list[int]]:
        """Messages that come back from workers, with an attempt more or without."""
        back = {
            lease: offsets
            for lease, settlement in self.settlements.items()
            if (offsets := deferred_of(lease, settlement, counts=counts))
        }
        for piece, _ in () if counts else self.ended:
            back.setdefault(piece.lease, []).extend(piece.offsets())
        return back

    def last_back(self) -> dict[str, int]:
        """The highest id that goes back of each partition."""
        back = [
            (lease.partition or "", lease.first + deferral.offset + deferral.count - 1)
            for lease, settlement in self.settlements.items()
            for deferral in settlement.deferred
        ]
        back += [(piece.lease.partition or "", piece.last_id()) for piece, _ in self._along()]
        return dict(sorted(back))  # the highest of a partition comes last, and stays

    def takes_along(self) -> bool:
        """Whether anything goes back that the plan isn't about."""
        return bool(self.rest or self.ended or self.beyond)

    def forget_along(self) -> None:
        """Nothing goes back along any more."""
        self.rest, self.ended, self.beyond = {}, [], []

    def _along(self) -> Iterable[tuple[Leased, int]]:
        return [*self.rest.values(), *self.ended]
