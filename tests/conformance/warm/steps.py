"""What tests of the warm tier do again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forebay.model import NO_FLOW, Block, Flow, Message, pack
from forebay.warm.seam import Warm
from forebay.warm.values import Lease, Leased, Parcel, Shelf, ShelfFlow
from tests.conformance.rigs import BEGIN

SECOND = 1_000_000
PLAIN = Shelf(3, 7, "orders/billing", messages_max=20, bytes_max=2_000)
LANES = Shelf(4, 8, "lanes/billing", messages_max=20, bytes_max=2_000, ordered=True)
# Past 2**53, where a double is no longer exact.
FIRST = pack(3_000, 1_999_999_990)


def parcel_of(
    claim: int,
    count: int = 1,
    *,
    at: float = 0,
    flow: Flow = NO_FLOW,
    partition: str | None = None,
    size: int = 10,
    offsets: Sequence[int] | None = None,
    noted: bool = False,
    first: int | None = None,
) -> Parcel:
    """A parcel whose payloads are "claim/offset"; ids grow with the claim, `at` is in seconds."""
    offsets = range(count) if offsets is None else offsets
    messages = [Message(f"{claim}/{offset}".encode(), partition or "") for offset in offsets]
    return Parcel(
        claim=claim,
        first=FIRST + 100 * claim if first is None else first,
        count=offsets[-1] + 1,
        offsets=offsets,
        size=size,
        flow=flow,
        partition=partition,
        attempts=2,
        created_at=BEGIN - 5,
        start_time=BEGIN + round(at * SECOND),
        prev_start_time=BEGIN - 3,
        block=None if noted else Block.of(messages, created_at=BEGIN),
    )


async def started(warm: Warm, shelf: Shelf, *parcels: Parcel) -> str:
    """Begin an epoch with these parcels on the shelf."""
    epoch = await warm.renew(shelf, await warm.epoch(shelf))
    assert await fill(warm, shelf, epoch, *parcels) == []
    return epoch


async def fill(warm: Warm, shelf: Shelf, epoch: str, *parcels: Parcel) -> list[int]:
    """Offer parcels in a fill of their own; the claims of those that are only noted."""
    fill = await warm.begin(shelf, epoch)
    assert fill is not None
    noted = await warm.offer(shelf, fill, parcels)
    await warm.end(shelf, fill)
    assert all(parcel.block is None for parcel in noted)
    return [parcel.claim for parcel in noted]


async def all_noted(
    warm: Warm, shelf: Shelf, epoch: str, messages: int = 100, besides: Iterable[Flow] = ()
) -> list[Parcel]:
    """What is noted, oldest first."""
    fill = await warm.begin(shelf, epoch)
    assert fill is not None
    found = await warm.noted(shelf, fill, messages, list(besides))
    await warm.end(shelf, fill)
    return found


async def take(warm: Warm, shelf: Shelf, epoch: str, count: int, seconds: float = 30) -> list[Leased]:
    """Lease some to a worker."""
    return await warm.take(shelf, epoch, count, "worker", seconds)


def texts(leased: Iterable[Leased]) -> list[str]:
    """The payloads that went out."""
    found = []
    for one in leased:
        block = one.parcel.block
        assert block is not None
        found += [block.payloads[place].decode() for place in one.places]
    return found


def wanted_of(leased: Iterable[Leased]) -> dict[Lease, list[int]]:
    """All that went out, by lease."""
    return {one.lease: one.offsets() for one in leased}


async def counts(warm: Warm, shelf: Shelf) -> tuple[int, int, int]:
    """Messages that are ready, leased and noted."""
    stats = await warm.stats(shelf)
    assert sum(flow.ready + flow.leased for flow in stats.flows) == stats.messages
    return (
        sum(flow.ready for flow in stats.flows),
        sum(flow.leased for flow in stats.flows),
        sum(flow.noted for flow in stats.flows),
    )


def by_flow(flows: Iterable[ShelfFlow]) -> dict[str, tuple[int, int, int, int | None]]:
    """What is counted, by the flow's name."""
    return {f.flow.name: (f.ready, f.leased, f.noted, f.oldest_at) for f in flows}
