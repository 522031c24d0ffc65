"""The warm tier: a bounded window of messages that are ready or leased. The seam of its implementations.

What every implementation promises:

- A shelf never holds more than its limits, in messages and in bytes, whoever offers at the same time; but for
  one message that has more bytes than all of it may have, which it holds alone.
- A message is at most once on a shelf: ready, leased or noted.
- A lease has one holder. It is lost when its deadline passes, and when its epoch ends.
- An unordered shelf hands out the oldest first, by start time and then by id; where several flows wait,
  the one with the fewest messages out comes first.
- An ordered shelf hands a partition to one worker at a time, by id.
- The tier may lose everything at any time. It then answers `EpochLost` to whoever relies on what was
  there, and begins a new epoch when it is asked to.
- No call's cost grows with anything but the messages it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from forebay.model import Conflict, Flow, Unavailable
from forebay.warm.values import Fill, Lane, Lease, Leased, Parcel, Return, Shelf, ShelfStats

Wanted = Mapping[Lease, Sequence[int]]
"""Messages by their lease: offsets in the claim."""


Heard = Callable[[int, int | None, Collection[str] | None], None]
"""Called when another server has put something in a queue (its number, None, and the partitions if they are
known), or has filled the shelf of a group (the queue's number, the group's, None)."""

WITHDRAWN_SECONDS = 5.0
"""How long what was withdrawn may take to be given back."""
RETURNS_MAX = 10_000
"""A shelf notes the returns of this many partitions one by one. Of more, it notes a return of all of them."""
RETURN_SECONDS = 60.0
"""When there are too many, those noted longer ago are dropped, of partitions that the shelf holds nothing of.

A message that was claimed before a return comes to the shelf within the time of a fill, which is much less.
"""


class EpochLost(Conflict):
    """The shelf's epoch has ended: what was on it is gone, and its leases are void."""


class WarmAway(Unavailable):
    """The warm tier can't be reached: its shelves may be as they were, or gone."""


class Warm(Protocol):
    """The verbs of the warm tier. Open it with `async with`."""

    name: str
    """Who holds the claims of its shelves, as the log knows it."""
    shared: bool
    """Whether other servers use it too."""

    @property
    def problem(self) -> str | None:
        """Why the tier can't be reached, as far as it is known; None while it can. Asks nobody."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def epoch(self, shelf: Shelf) -> str | None:
        """The epoch that the shelf is in; None before the first, and after a loss."""
        ...

    async def renew(self, shelf: Shelf, lost: str | None) -> str:
        """Empty the shelf and begin a new epoch, if it is still in the one named `lost`; the epoch now.

        Its name says how often the group has sought (see `epoch_name`).
        What the log holds for the old one is to be given back by the caller.
        """
        ...

    async def begin(self, shelf: Shelf, epoch: str) -> Fill | None:
        """Begin to fill; None while somebody else does. One that was never ended puts the next in doubt."""
        ...

    async def offer(self, shelf: Shelf, fill: Fill, parcels: Sequence[Parcel]) -> list[Parcel]:
        """Put parcels on the shelf, in order; returns those that are only noted, without their bodies.

        Noted is what comes without a block, what would be over a limit, and what comes after a noted
        parcel of its flow (ordered: of its partition). A parcel that was noted, and comes again with its
        block, takes its place.
        """
        ...

    async def noted(
        self,
        shelf: Shelf,
        fill: Fill,
        messages: int,
        besides: Collection[Flow] = (),
        *,
        partition: str | None = None,
    ) -> list[Parcel]:
        """The oldest noted parcels, about so many messages, at least one if there is one.

        Flows (ordered: partitions) whose oldest is of one of the flows `besides` stay where they are.
        `partition` asks for those of one partition.
        """
        ...

    async def lane(self, shelf: Shelf, fill: Fill, partition: str) -> Lane:
        """What an ordered shelf has of one partition."""
        ...

    async def spare(
        self, shelf: Shelf, fill: Fill, messages: int, size: int, *, besides: str
    ) -> list[Leased]:
        """Make room for so many messages and bytes, or as much as can be: give back what is not asked for.

        Partitions of which nothing is out, those that would come last first, are withdrawn whole, but for
        the one that is named; see `withdraw`. Leases come without bodies, those of what was noted last.
        """
        ...

    async def claims(self, shelf: Shelf, fill: Fill) -> set[int]:
        """The tokens of all claims that the shelf has messages of."""
        ...

    async def end(self, shelf: Shelf, fill: Fill, *, doubt: bool = False) -> None:
        """The fill is over; wakes up those that wait on other servers.

        With `doubt`, claims may have been made in the log that never came here: the next fill looks for them.
        """
        ...

    async def take(
        self,
        shelf: Shelf,
        epoch: str,
        count: int,
        worker: str,
        seconds: float,
        *,
        partition: str | None = None,
        partitions_max: int | None = None,
        behind: Lease | None = None,
    ) -> list[Leased]:
        """Lease up to `count` messages to a worker for so many seconds.

        From an ordered shelf: those of one `partition`, if it isn't out; or of at most so many. To whom holds
        `behind`, a lease on messages of the named partition, goes what comes after them, too.
        """
        ...

    async def held(self, shelf: Shelf, wanted: Wanted) -> dict[Lease, list[int]]:
        """Which of these messages their leases still hold; offsets in the claim."""
        ...

    async def finish(self, shelf: Shelf, wanted: Wanted) -> None:
        """Take messages off the shelf, whatever became of them; what isn't held by its lease is ignored."""
        ...

    async def release(self, shelf: Shelf, wanted: Wanted) -> None:
        """Make messages ready again, in their place; what isn't held by its lease is ignored."""
        ...

    async def extend(self, shelf: Shelf, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Let leases expire so many seconds from now; returns those that are lost."""
        ...

    async def expire(self, shelf: Shelf, epoch: str, count: int, seconds: float) -> list[Leased]:
        """Take over leases that have expired, about so many messages, under new leases of our own."""
        ...

    async def withdraw(self, shelf: Shelf, epoch: str, partition: str) -> list[Leased]:
        """Lease all that is ready of a partition to nobody, to give it back to the log; forget what is noted.

        What was noted comes with leases too, which the shelf doesn't know; so the next fill is in doubt.
        """
        ...

    async def out_after(self, shelf: Shelf, epoch: str, partition: str, message_id: int) -> list[Leased]:
        """What leases of a partition of an ordered shelf hold past a message, by id; without bodies.

        A lease that is over holds nothing. Costs by the leases of that partition.
        """
        ...

    async def withhold(self, shelf: Shelf, wanted: Wanted, *, counts: bool) -> dict[Lease, list[int]]:
        """Take messages from their holders, and keep them out until the deadlines of their leases.

        Returns the new leases. With `counts`, they expire like those of their workers; otherwise they are
        leases of nobody.
        """
        ...

    async def note_returns(self, shelf: Shelf, epoch: str, last: Mapping[str, int]) -> None:
        """Note that messages of partitions go back to the log, up to these ids: `take` tells it from now on.

        A server that the log can't answer hands out nothing of such a partition: something that went back may
        have to come first.
        """
        ...

    async def forget_returns(self, shelf: Shelf, epoch: str, returned: Mapping[str, Return]) -> None:
        """Forget returns, as `take` told them: the log has let out all of it. What was noted since stays."""
        ...

    async def next_expiry(self, shelf: Shelf) -> int | None:
        """When the next lease expires."""
        ...

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        """Tell the other servers that a queue has something new; in these partitions, if they are known."""
        ...

    def listen(self, heard: Heard) -> None:
        """Have `heard` called whenever another server announces something. Some of it may be missed."""
        ...

    async def stats(self, shelf: Shelf) -> ShelfStats:
        """What the shelf holds; costs by parcels, never by messages."""
        ...

    async def peek(self, shelf: Shelf, count: int) -> list[tuple[Parcel, range]]:
        """The first ready messages by time and id, up to `count`, as places of parcels. They stay there.

        An ordered shelf shows only partitions that may be handed out now.
        """
        ...

    async def running(self, shelf: Shelf, limit: int = 100) -> list[Leased]:
        """What is out, longest first; without bodies."""
        ...
