"""The values that cross the warm seam: shelves, parcels, leases, and what is counted.

Times are microseconds UTC. All values are immutable. A place is the position of a message within its
parcel; an offset is its position within the claim that the parcel was cut from.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.model import Block, Flow


class Shelf(msgspec.Struct, frozen=True):
    """Where the messages of one group are kept, and how many."""

    queue: int
    group: int
    name: str
    """The names of queue and group, for people and for keys."""
    messages_max: int = 5_000
    bytes_max: int = 64 << 20
    ordered: bool = False
    sought: int = 0
    """How often the group was sent to another place; an epoch that began before the last time is over."""


class Parcel(msgspec.Struct, frozen=True):
    """Messages of one claim that are handed out alike: of one flow, activated at one time.

    In an ordered queue it is a run of consecutive messages of one partition. Without a `block` it is
    only noted: its messages are the shelf's, but their bodies are still to be brought.
    """

    claim: int
    """The token under which the log holds the claim."""
    first: int
    """The id of the claim's first message."""
    count: int
    """The number of messages in the claim."""
    offsets: Sequence[int]
    """Which of them are in this parcel, ascending."""
    size: int
    """Bytes that it takes on the shelf."""
    flow: Flow
    partition: str | None
    attempts: int
    created_at: int
    start_time: int
    prev_start_time: int | None
    block: Block | None

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from all other parcels of the shelf."""
        return self.claim, self.offsets[0]

    @property
    def id(self) -> int:
        """The id of its first message."""
        return self.first + self.offsets[0]

    def __len__(self) -> int:
        """How many messages it has."""
        return len(self.offsets)


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """The right to settle some messages of a claim, until it expires: the fencing token of tasks.

    It says all that the log must be told, but for the messages themselves, so settling needs no look-up.
    """

    group: int
    epoch: str
    number: int
    claim: int
    first: int
    count: int
    attempts: int
    start_time: int
    prev_start_time: int | None = None
    partition: str | None = None
    """In an ordered queue."""


class Return(msgspec.Struct, frozen=True):
    """Messages of a partition went back from an ordered shelf to the log, and may have to come first."""

    last: int
    """The highest id among them."""
    number: int
    """Tells it from returns that are noted later."""
    at: int
    """When it was noted."""


class Leased(msgspec.Struct, frozen=True):
    """Messages that went out under one lease: these places of a parcel."""

    lease: Lease
    parcel: Parcel
    places: Sequence[int]
    worker: str
    since: int
    deadline: int
    returned: Return | None = None
    """The last return noted for the partition; only `take` sets it."""

    def span(self) -> Sequence[int]:
        """Their offsets in the claim, as a range where they are one."""
        offsets, places = self.parcel.offsets, self.places
        if isinstance(places, range):
            return offsets[places.start : places.stop]
        return [offsets[place] for place in places]

    def offsets(self) -> list[int]:
        """Their offsets in the claim."""
        return list(self.span())

    def first_id(self) -> int:
        """The id of the first of them."""
        return self.parcel.first + self.parcel.offsets[self.places[0]]

    def last_id(self) -> int:
        """The id of the last of them."""
        return self.parcel.first + self.parcel.offsets[self.places[-1]]


def epoch_name(unique: str, shelf: Shelf) -> str:
    """What an epoch that begins now is called: so that it can be told when a group has sought since."""
    return f"{unique}.{shelf.sought}"


def is_outdated(epoch: str, shelf: Shelf) -> bool:
    """Whether the group was sent elsewhere since an epoch began: what is on the shelf is void."""
    sought = epoch.rpartition(".")[2]
    return sought.isdecimal() and int(sought) < shelf.sought


class Fill(msgspec.Struct, frozen=True):
    """The right to bring messages to a shelf, which one server has at a time."""

    epoch: str
    number: int
    messages: int
    """How many messages are on the shelf, ready and leased."""
    bytes: int
    flows: dict[Flow, int]
    """How many of them, by flow."""
    noted: dict[Flow, int]
    """Parcels whose bodies are still to be brought, by flow."""
    doubt: bool
    """The log may hold claims for this shelf that never came to it."""


class Lane(msgspec.Struct, frozen=True):
    """What an ordered shelf has of one partition, in messages."""

    ready: int
    out: int
    noted: int
    """Parcels whose bodies are still to be brought."""


class ShelfFlow(msgspec.Struct, frozen=True):
    """What a shelf holds of one flow."""

    flow: Flow
    ready: int
    leased: int
    noted: int
    """Messages whose bodies are still to be brought."""
    oldest_at: int | None
    """Since when the oldest that waits is ready."""


class ShelfStats(msgspec.Struct, frozen=True):
    """What a shelf holds, at one moment."""

    at: int
    messages: int
    bytes: int
    flows: Sequence[ShelfFlow]
