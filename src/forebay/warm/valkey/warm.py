"""ValkeyWarm: the warm tier on Valkey or Redis (6.2 or later), shared by all servers that use its prefix.

Each verb is one Lua script, so it is atomic. Time is the server's, unless a clock is given. The keys are
drawn in `docs/explanation/warm-valkey.md`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from forebay.model import Block, Clock, Flow, Misconfigured, decode, encode
from forebay.warm.seam import RETURN_SECONDS, RETURNS_MAX, WITHDRAWN_SECONDS, EpochLost, Heard, Wanted
from forebay.warm.valkey.bodies import Bodies
from forebay.warm.valkey.ears import Ears, words
from forebay.warm.valkey.scripts import load
from forebay.warm.valkey.server import Argument, Server
from forebay.warm.valkey.slips import (
    count_flows,
    flow_of_text,
    flow_text,
    from_ranges,
    lease_of,
    name_of,
    pack,
    pairs_of,
    read_record,
    to_parcel,
    to_ranges,
    to_slip,
)
from forebay.warm.values import Fill, Lane, Lease, Leased, Parcel, Return, Shelf, ShelfStats, epoch_name

_SECOND: Final = 1_000_000
_PREFIX: Final = re.compile(r"[\w.:/-]+")


class ValkeyWarm:
    """See the module. `fill_seconds` is how long a fill may take before another may begin."""

    shared = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "forebay",
        clock: Clock | None = None,
        timeout_seconds: float = 1.0,
        fill_seconds: float = 3.0,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise Misconfigured(
                f"prefix {prefix!r} cannot begin a key", hint="use letters, digits and . : / -"
            )
        self.name = f"valkey/{prefix}"
        self._prefix = prefix
        self._clock = clock
        self._fill_seconds = fill_seconds
        self._server = Server(url, timeout_seconds)
        self._channel = f"{prefix}:announcements"
        self._ears = Ears(self._server, self._channel)
        self._bodies = Bodies()

    async def __aenter__(self) -> Self:
        try:
            self._ears.problem = await self._server.check()
        except BaseException:
            await self._server.close()
            raise
        self._ears.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._ears.stop()
        await self._server.close()

    @property
    def problem(self) -> str | None:
        return self._ears.problem

    # Epochs

    async def epoch(self, shelf: Shelf) -> str | None:
        found = await self._run("epoch", shelf, "")
        return None if found is None else found.decode()

    async def renew(self, shelf: Shelf, lost: str | None) -> str:
        # An epoch is never empty, so the empty one stands for none.
        found: bytes = await self._run("renew", shelf, lost or "", epoch_name(secrets.token_hex(8), shelf))
        return found.decode()

    # Filling

    async def begin(self, shelf: Shelf, epoch: str) -> Fill | None:
        found = await self._run("begin", shelf, epoch, _microseconds(self._fill_seconds))
        if found is None:
            return None
        number, messages, size, flows, noted, doubt = found
        return Fill(epoch, number, messages, size, _flow_counts(flows), _flow_counts(noted), bool(doubt))

    async def offer(self, shelf: Shelf, fill: Fill, parcels: Sequence[Parcel]) -> list[Parcel]:
        arguments: list[Argument] = [fill.number, shelf.messages_max, shelf.bytes_max]
        for parcel in parcels:
            body = b"" if parcel.block is None else encode(parcel.block)
            arguments += (name_of(parcel), to_slip(parcel), body)
        found = await self._run("offer", shelf, fill.epoch, *arguments)
        return [msgspec.structs.replace(parcels[place], block=None) for place in found]

    async def noted(
        self,
        shelf: Shelf,
        fill: Fill,
        messages: int,
        besides: Collection[Flow] = (),
        *,
        partition: str | None = None,
    ) -> list[Parcel]:
        flows = map(flow_text, besides)
        only = "" if partition is None else f"={partition}"
        found = await self._run("noted", shelf, fill.epoch, fill.number, messages, only, *flows)
        return [to_parcel(raw) for raw in found]

    async def lane(self, shelf: Shelf, fill: Fill, partition: str) -> Lane:
        return Lane(*await self._run("lane", shelf, fill.epoch, fill.number, partition))

    async def spare(
        self, shelf: Shelf, fill: Fill, messages: int, size: int, *, besides: str
    ) -> list[Leased]:
        held = _microseconds(WITHDRAWN_SECONDS)
        found = await self._run("spare", shelf, fill.epoch, fill.number, messages, size, held, besides)
        return _withdrawn(shelf, fill.epoch, found)

    async def claims(self, shelf: Shelf, fill: Fill) -> set[int]:
        found = await self._run("claims", shelf, fill.epoch, fill.number)
        return {int(name.partition(b".")[0]) for names in found for name in names}

    async def end(self, shelf: Shelf, fill: Fill, *, doubt: bool = False) -> None:
        said = words(shelf.queue, shelf.group)
        await self._run("end", shelf, fill.epoch, fill.number, self._channel, said, int(doubt))

    # Leases

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
        known = self._bodies.known(shelf, epoch)
        arguments: list[Argument] = [count, worker, _microseconds(seconds), pack(list(known))]
        arguments.append("" if partitions_max is None else partitions_max)
        if partition is not None:
            is_held = behind is not None and (behind.group, behind.epoch) == (shelf.group, epoch)
            arguments += (partition, behind.number if behind is not None and is_held else "")
        found = await self._run("take", shelf, epoch, *arguments)
        leased = _leased(shelf, epoch, found, known)
        for one in leased:
            self._bodies.keep(one)
        return leased

    async def held(self, shelf: Shelf, wanted: Wanted) -> dict[Lease, list[int]]:
        asked = _asked(shelf, wanted)
        if not asked:
            return {}
        held: dict[Lease, list[int]] = {}
        leases = list(asked)
        for place, ranges in await self._run("held", shelf, "", pack(list(asked.values()))):
            lease = leases[place]
            good, offsets = from_ranges(ranges), wanted[lease]
            if ranges == asked[lease][2]:
                held[lease] = list(offsets)
            else:
                some = frozenset(good)
                held[lease] = [offset for offset in offsets if offset in some]
        return held

    async def finish(self, shelf: Shelf, wanted: Wanted) -> None:
        if asked := _asked(shelf, wanted):
            await self._run("finish", shelf, "", pack(list(asked.values())))

    async def release(self, shelf: Shelf, wanted: Wanted) -> None:
        if asked := _asked(shelf, wanted):
            await self._run("release", shelf, "", pack(list(asked.values())))

    async def extend(self, shelf: Shelf, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        asked = [(lease.number, lease.epoch if lease.group == shelf.group else "") for lease in leases]
        if not asked:
            return []
        found = await self._run("extend", shelf, "", _microseconds(seconds), pack(asked))
        return [leases[place] for place in found]

    async def expire(self, shelf: Shelf, epoch: str, count: int, seconds: float) -> list[Leased]:
        found = await self._run("expire", shelf, epoch, count, _microseconds(seconds))
        return _leased(shelf, epoch, found)

    async def withdraw(self, shelf: Shelf, epoch: str, partition: str) -> list[Leased]:
        found = await self._run("withdraw", shelf, epoch, partition, _microseconds(WITHDRAWN_SECONDS))
        return _withdrawn(shelf, epoch, found)

    async def out_after(self, shelf: Shelf, epoch: str, partition: str, message_id: int) -> list[Leased]:
        found = await self._run("out_after", shelf, epoch, partition, f"{message_id:019}")
        return sorted([_shown(shelf, epoch, parts) for parts in found], key=Leased.first_id)

    async def withhold(self, shelf: Shelf, wanted: Wanted, *, counts: bool) -> dict[Lease, list[int]]:
        asked = _asked(shelf, wanted)
        if not asked:
            return {}
        found = await self._run("withhold", shelf, "", pack(list(asked.values())), "1" if counts else "")
        leases = list(asked)
        return {
            msgspec.structs.replace(leases[place], number=number): list(wanted[leases[place]])
            for place, number in found
        }

    async def note_returns(self, shelf: Shelf, epoch: str, last: Mapping[str, int]) -> None:
        pairs = [part for partition, message_id in last.items() for part in (partition, f"{message_id:019}")]
        await self._run("note_returns", shelf, epoch, RETURNS_MAX, _microseconds(RETURN_SECONDS), *pairs)

    async def forget_returns(self, shelf: Shelf, epoch: str, returned: Mapping[str, Return]) -> None:
        pairs = [part for partition, one in returned.items() for part in (partition, _return_text(one))]
        await self._run("forget_returns", shelf, epoch, *pairs)

    async def next_expiry(self, shelf: Shelf) -> int | None:
        found: int | None = await self._run("next_expiry", shelf, "")
        return found

    # Waking up

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        await self._server.publish(self._channel, words(queue, partitions=partitions))

    def listen(self, heard: Heard) -> None:
        self._ears.add(heard)

    # Counting

    async def stats(self, shelf: Shelf) -> ShelfStats:
        now, *found = await self._run("stats", shelf, "")
        if not found:
            return ShelfStats(now, 0, 0, ())
        messages, size, *parts = found
        return ShelfStats(now, messages, size, count_flows(*parts))

    async def peek(self, shelf: Shelf, count: int) -> list[tuple[Parcel, range]]:
        found = []
        for slip, body, first, last in await self._run("peek", shelf, "", count):
            parcel = msgspec.structs.replace(to_parcel(slip), block=decode(body))
            found.append((parcel, range(first, last)))
        return found

    async def running(self, shelf: Shelf, limit: int = 100) -> list[Leased]:
        epoch, found = await self._run("running", shelf, "", limit)
        return [_shown(shelf, epoch.decode(), parts) for parts in found]

    async def _run(self, verb: str, shelf: Shelf, epoch: str, *arguments: Argument) -> Any:
        """Run the script of a verb on a shelf."""
        now = "" if self._clock is None else self._clock.now()
        key = f"{self._prefix}:{{{shelf.name}#{shelf.group}}}"
        found = await self._server.run(load(verb), key, epoch, now, int(shelf.ordered), *arguments)
        if found == b"LOST":
            raise EpochLost(f"the warm tier of {shelf.name} began anew", hint="fill it again")
        if found == b"OVER":
            raise EpochLost(f"the fill of {shelf.name} is over", hint="begin another one")
        return found


def _microseconds(seconds: float) -> int:
    return int(seconds * _SECOND)


def _flow_counts(flat: Sequence[bytes]) -> dict[Flow, int]:
    return {flow_of_text(text.decode()): int(count) for text, count in pairs_of(flat)}


def _asked(shelf: Shelf, wanted: Wanted) -> dict[Lease, tuple[int, str, list[int]]]:
    """What scripts are asked about leases of a shelf."""
    return {
        lease: (lease.number, lease.epoch, to_ranges(offsets))
        for lease, offsets in wanted.items()
        if lease.group == shelf.group
    }


def _leased(
    shelf: Shelf, epoch: str, found: Sequence[Any], known: Mapping[str, Block] | None = None
) -> list[Leased]:
    """Read what the function `leased` of the scripts answers; bodies that are known don't come with it."""
    since, deadline, leases, parts = found[:4]
    parcels: dict[int, Parcel] = {}
    for place in range(0, len(parts), 2):
        parcel, body = to_parcel(parts[place]), parts[place + 1]
        block = (known or {}).get(name_of(parcel)) if body is None else decode(body)
        parcels[place] = msgspec.structs.replace(parcel, block=block)
    leased = []
    for number, place, worker, ranges, *noted in leases:
        parcel = parcels[place]
        lease = lease_of(shelf, epoch, number, parcel)
        returned = _return_of(noted[0]) if noted else None
        leased.append(Leased(lease, parcel, from_ranges(ranges), worker.decode(), since, deadline, returned))
    return leased


def _return_text(returned: Return) -> str:
    """A return as `note_returns` writes it down."""
    return f"{returned.last:019}:{returned.number}:{returned.at}"


def _return_of(text: bytes) -> Return:
    return Return(*map(int, text.split(b":")))


def _shown(shelf: Shelf, epoch: str, parts: Sequence[bytes]) -> Leased:
    """Read a lease that is out: key, since, deadline, record and slip."""
    key, since, deadline, raw, slip = parts
    record, parcel = read_record(raw), to_parcel(slip)
    lease = lease_of(shelf, epoch, int(key), parcel)
    return Leased(lease, parcel, from_ranges(record.ranges), record.worker, int(since), int(deadline))


def _withdrawn(shelf: Shelf, epoch: str, found: Sequence[Any]) -> list[Leased]:
    """Read what was withdrawn; what was noted comes with leases too, which the shelf doesn't know."""
    leased, now = _leased(shelf, epoch, found), found[0]
    for number, raw in pairs_of(found[4]):
        parcel = to_parcel(raw)
        lease = lease_of(shelf, epoch, number, parcel)
        leased.append(Leased(lease, parcel, range(len(parcel)), "", now, now))
    return leased
