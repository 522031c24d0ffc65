"""Stages in PostgreSQL: blocks that are kept unseen until they are published together.

Beside each block is what publishing needs to know of it, so that bodies never leave the database but for
those that hold duplicates. Publishing is one transaction in two parts. First bodies are copied to where
blocks are, under numbers that mean nothing: that takes long, and nobody waits for it. Then, under the locks
of the queues, records are written and blocks get their places, which moves no body. One body at a time is in
memory at most, and no statement moves more than `COPIED_BYTES_MAX`.
"""

from __future__ import annotations

import bisect
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from forebay.log.claiming import nothing_staged
from forebay.log.delays import Delays
from forebay.log.intake import Answer, Intake, resolve
from forebay.log.postgres.records import write_records
from forebay.log.postgres.rows import queue_of_row
from forebay.log.postgres.writing import ID_SKEW_US, add_delayed, digests_column, ids_between
from forebay.log.registry import unknown_queue
from forebay.log.values import Append, Appended, Queue, Receipt, Record
from forebay.model import SEQUENCE_MAX, Limits, Rejected, Unavailable, decode, pack

if TYPE_CHECKING:
    from forebay.log.postgres.database import Connection, Database

COPIED_BYTES_MAX: Final = 16 << 20
"""How much one statement copies; one block always fits."""
UNSTAGED_ROWS: Final = 500
"""How many blocks of a stage one statement removes."""
TRIES: Final = 5
"""How often a publish begins anew, when others change its queues or write its blocks meanwhile."""


_encode_delays: Final = msgspec.msgpack.Encoder().encode
_decode_delays: Final = msgspec.msgpack.Decoder(Delays).decode


class _Overtaken(Exception):  # noqa: N818 - a signal that rolls the transaction back, not an error
    """What was copied is no longer what is to be published: begin again."""


_Duplicate = tuple[int, int, int, int, int | None]
"""The place and index of a message; those of the one that it repeats, or that one's id, where it is known."""


class _Piece(msgspec.Struct, kw_only=True):
    """A staged block on its way; `number` is what its copy has for a place until it gets one."""

    id: bytes
    queue: int
    count: int | None
    partition: str | None
    size: int
    digests: int | None
    """How many bytes there are of them; none where there are no transaction ids."""
    created_at: int
    number: int = 0
    repeats: bool = False
    """Whether it holds a transaction id twice."""
    found: list[tuple[int, int]] = []
    """Its duplicates: index, and id of the first message."""
    first: int = 0
    dropped: bytes | None = None

    @property
    def uuid(self) -> UUID:
        return UUID(bytes=self.id)

    @property
    def offered(self) -> int:
        """How many messages it has, those that it repeats aside."""
        assert self.count is not None, "a block that was not looked at"
        return self.count

    @property
    def left(self) -> int:
        """How many messages it has but for duplicates."""
        return self.offered - len(self.found)


class _Place(msgspec.Struct):
    """A queue, and where its next block goes."""

    queue: Queue
    next: int
    at: int
    dedupe_us: int


class Offer:
    """A block that is staged: as it came, and what publishing needs to know of it at present."""

    def __init__(self, append: Append, queue: Queue, limits: Limits) -> None:
        self.append = append
        self.intake = Intake(append, queue, limits)
        self._named = any(name is not None for name in append.block.transaction_ids or ())

    @property
    def count(self) -> int | None:
        """How many messages it has; none where it repeats a transaction id, and must be looked at again."""
        return None if self.intake.dropped is not None else len(self.append.block)

    @property
    def digests(self) -> bytes | None:
        """What stands for its transaction ids; nothing in it where they don't count at present."""
        return (digests_column(self.intake) or b"") if self._named else None

    @property
    def delays(self) -> bytes | None:
        """Its start times, but for duplicates; nothing where it has none."""
        delays = self.intake.delays
        return None if delays is None else _encode_delays(delays)


async def stage(
    connection: Connection, sql: Mapping[str, str], name: str, offers: Sequence[Offer], now: int | None
) -> None:
    """Keep blocks under a name, with what publishing needs to know of them."""
    await connection.execute(
        sql["stage"],
        name,
        now,
        [UUID(bytes=offer.append.block.id) for offer in offers],
        [offer.append.queue for offer in offers],
        [offer.append.body for offer in offers],
        [offer.count for offer in offers],
        [offer.intake.partition for offer in offers],
        [offer.intake.flows for offer in offers],
        [offer.digests for offer in offers],
        [offer.delays for offer in offers],
    )


async def publish(
    database: Database,
    sql: Mapping[str, str],
    name: str,
    ids: Sequence[bytes],
    records: Sequence[Record],
    *,
    limits: Limits,
    now: int | None,
    replayed: bool,
) -> Receipt:
    """Append blocks of a stage and write records; see the seam."""
    for _ in range(TRIES):
        try:
            async with database.transaction() as connection:
                publication = _Publication(
                    connection, sql, name, ids, limits=limits, now=now, replayed=replayed
                )
                return await publication.run(records)
        except _Overtaken:
            continue
    raise Unavailable("others write the blocks that are published", hint="try again with the same ids")


class _Publication:
    """One transaction that publishes."""

    def __init__(
        self,
        connection: Connection,
        sql: Mapping[str, str],
        name: str,
        ids: Sequence[bytes],
        *,
        limits: Limits,
        now: int | None,
        replayed: bool,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._name = name
        self._ids = ids
        self._wanted = [UUID(bytes=i) for i in dict.fromkeys(ids)]
        self._limits = limits
        self._clock = now
        self._replayed = replayed
        self._copied_at = 0

    async def run(self, records: Sequence[Record]) -> Receipt:
        """Copy, lock, write, and forget the stage."""
        # Also where all is known already: what was found may have been committed lazily.
        await self._connection.execute(self._sql["sync"])
        await self._connection.execute(self._sql["lock_stage"], self._name)
        staged = await self._staged()
        known = await self._known()
        missing = [i for i in self._ids if i not in staged and i not in known]
        if missing:
            raise nothing_staged(self._name, len(missing))
        pieces = [staged[i] for i in dict.fromkeys(self._ids) if i not in known]
        await self._copy(pieces)
        numbers = sorted({piece.queue for piece in pieces})
        for number in numbers:
            await self._connection.execute(self._sql["lock_queue"], number)
        now = await self._now()
        places = await self._places(numbers, now)
        if (await self._known()).keys() != known.keys() or not all(
            _is_plain(piece, places[piece.queue].queue) for piece in pieces
        ):
            raise _Overtaken
        if records:
            await write_records(self._connection, self._sql, records, self._clock)
        await self._append(pieces, places, now)
        while await self._connection.fetchval(self._sql["unstage"], self._name, UNSTAGED_ROWS):
            pass
        return Receipt(self._answers(pieces, known))

    async def _staged(self) -> dict[bytes, _Piece]:
        rows = await self._connection.fetch(self._sql["staged"], self._name, self._wanted)
        return {
            row["id"].bytes: _Piece(
                id=row["id"].bytes,
                queue=row["queue"],
                count=row["count"],
                partition=row["partition"],
                size=row["size"],
                digests=row["digests"],
                created_at=int.from_bytes(row["created_at"], "little", signed=True),
            )
            for row in rows
        }

    async def _known(self) -> dict[bytes, Answer]:
        since, until = ids_between([i.bytes for i in self._wanted])
        if until > await self._now() + ID_SKEW_US:
            text = "an id lies more than a day in the future of the log's clock"
            raise Rejected(text, hint="check the clock of the machine that minted it")
        rows = await self._connection.fetch(self._sql["receipts"], self._wanted, since)
        return {
            row["id"].bytes: Answer(row["first"], row["count"], known=True, dropped=row["dropped"])
            for row in rows
        }

    async def _now(self) -> int:
        now: int = self._clock or await self._connection.fetchval(self._sql["now"])
        return now

    async def _places(self, numbers: Sequence[int], now: int) -> dict[int, _Place]:
        rows = await self._connection.fetch(self._sql["publishing_queues"], numbers, now)
        places = {
            row["number"]: _Place(queue_of_row(row), row["next"], row["at"], row["dedupe_us"]) for row in rows
        }
        for number in numbers:
            if number not in places:
                raise unknown_queue(f"number {number}", ())
        return places

    # Before others wait

    async def _copy(self, pieces: Sequence[_Piece]) -> None:
        self._copied_at = await self._now()
        places = await self._places(sorted({piece.queue for piece in pieces}), self._copied_at)
        lot = secrets.randbits(61)
        for index, piece in enumerate(pieces):
            piece.number = -lot - index - 1
            if not _is_plain(piece, places[piece.queue].queue):
                await self._look_again(piece, places[piece.queue].queue)
        for some in _in_pieces(pieces):
            arguments = (self._copied_at, [p.uuid for p in some], [p.number for p in some])
            await self._connection.execute(self._sql["copy_staged"], self._name, *arguments)

    async def _look_again(self, piece: _Piece, queue: Queue) -> None:
        """Find out what publishing needs to know of a block, by what its queue is now."""
        body = await self._connection.fetchval(self._sql["staged_body"], self._name, piece.uuid)
        offer = Offer(Append(piece.queue, decode(body), body), queue, self._limits)
        piece.count, piece.partition = len(offer.intake.block), offer.intake.partition
        piece.repeats = offer.intake.dropped is not None
        await self._describe(piece, offer)

    async def _describe(self, piece: _Piece, offer: Offer) -> None:
        digests = offer.digests
        piece.digests = None if digests is None else len(digests)
        intake = offer.intake
        columns = (len(intake.block), intake.partition, intake.flows, digests, offer.delays)
        await self._connection.execute(self._sql["describe_staged"], self._name, piece.uuid, *columns)

    # While others wait

    async def _append(self, pieces: Sequence[_Piece], places: Mapping[int, _Place], now: int) -> None:
        before = {number: place.next for number, place in places.items()}
        for some in _in_pieces(pieces):
            await self._append_some(some, places, now)
        for number, place in places.items():
            if place.next > before[number]:
                await self._connection.execute(self._sql["drop_heads"], number, before[number])
                await self._connection.execute(self._sql["add_head"], number, place.next, place.at)

    async def _append_some(self, pieces: Sequence[_Piece], places: Mapping[int, _Place], now: int) -> None:
        named = [piece for piece in pieces if piece.digests]
        found = await self._duplicates(named, places, now) if named else []
        for which, index, *_ in found:
            named[which].found.append((index, 0))
        for piece in pieces:
            place = places[piece.queue]
            piece.first = pack(piece.queue, place.next)
            place.next += piece.left
            if place.next > SEQUENCE_MAX:
                raise Rejected(f"queue {place.queue.name!r} is out of sequence numbers", hint="use another")
        _resolve(named, found)
        for piece in pieces:
            if piece.found or piece.repeats:
                await self._rewrite(piece, places[piece.queue].queue)
        await self._settle_down(pieces, places, now)

    async def _duplicates(
        self, named: Sequence[_Piece], places: Mapping[int, _Place], now: int
    ) -> list[_Duplicate]:
        windows = [places[piece.queue].dedupe_us for piece in named]
        accepted = [self._accepted_at(piece, now) for piece in named]
        born = [places[piece.queue].queue.created_at for piece in named]
        since = [max(at - us + 1, first) for at, us, first in zip(accepted, windows, born, strict=True)]
        rows = await self._connection.fetch(
            self._sql["staged_duplicates"], self._name, [piece.uuid for piece in named], since
        )
        return _near([tuple(row) for row in rows], accepted, windows)

    def _accepted_at(self, piece: _Piece, now: int) -> int:
        return min(piece.created_at, now) if self._replayed else now

    async def _rewrite(self, piece: _Piece, queue: Queue) -> None:
        """Leave out of a block what is there already."""
        body = await self._connection.fetchval(self._sql["copied_body"], self._copied_at, piece.number)
        offer = Offer(Append(piece.queue, decode(body), body), queue, self._limits)
        if piece.found:
            offer.intake.drop(tuple(piece.found))
        piece.dropped = offer.intake.dropped
        await self._describe(piece, offer)
        if piece.left:
            columns = (offer.intake.body, offer.intake.flows)
            await self._connection.execute(self._sql["rewrite_copy"], self._copied_at, piece.number, *columns)

    async def _settle_down(self, pieces: Sequence[_Piece], places: Mapping[int, _Place], now: int) -> None:
        """Give the copies of blocks their places, and remember their ids."""
        kept, empty = [p for p in pieces if p.left], [p.number for p in pieces if not p.left]
        if empty:
            await self._connection.execute(self._sql["drop_copies"], self._copied_at, empty)
        placed = await self._connection.execute(
            self._sql["place_copies"],
            self._copied_at,
            [p.number for p in kept],
            [p.first + p.left - 1 for p in kept],
            [p.left for p in kept],
            [places[p.queue].at for p in kept],
            [p.partition for p in kept],
        )
        assert placed == f"UPDATE {len(kept)}", "a block that was copied is not there"
        columns = ([p.uuid for p in pieces], [p.first for p in pieces], [p.left for p in pieces])
        dropped = [p.dropped for p in pieces]
        await self._connection.execute(self._sql["publish_receipts"], now, *columns, dropped)
        await self._add_delayed(kept, now)
        if named := [p for p in kept if p.digests]:
            firsts = ([p.uuid for p in named], [p.first for p in named])
            accepted = [self._accepted_at(p, now) for p in named]
            await self._connection.execute(self._sql["publish_digests"], self._name, now, *firsts, accepted)

    async def _add_delayed(self, kept: Sequence[_Piece], now: int) -> None:
        uuids = [piece.uuid for piece in kept]
        rows = await self._connection.fetch(self._sql["staged_delays"], self._name, uuids)
        found = {row["id"]: _decode_delays(row["delays"]) for row in rows}
        late = [
            (p.queue, p.left, p.partition, p.first + p.left - 1, found[p.uuid])
            for p in kept
            if p.uuid in found
        ]
        if late:
            await add_delayed(self._connection, late, now)

    def _answers(self, pieces: Sequence[_Piece], known: Mapping[bytes, Answer]) -> list[Appended]:
        answers = {piece.id: Answer(piece.first, piece.left, dropped=piece.dropped) for piece in pieces}
        return [resolve(answers.get(i) or known[i]) for i in self._ids]


def _is_plain(piece: _Piece, queue: Queue) -> bool:
    """Whether what is known of a block holds for its queue."""
    settings = queue.settings
    return (
        piece.count is not None
        and settings.ordered == (piece.partition is not None)
        and (piece.digests is None or (piece.digests > 0) == (settings.dedupe_seconds > 0))
    )


def _in_pieces(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """The blocks, as many at a time as one statement may copy."""
    some: list[_Piece] = []
    size = 0
    for piece in pieces:
        if some and size + piece.size > COPIED_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(piece)
        size += piece.size
    if some:
        yield some


def _near(
    rows: Sequence[tuple[int, int, bytes, int | None, int]], accepted: Sequence[int], windows: Sequence[int]
) -> list[_Duplicate]:
    """Those that repeat the message of their transaction id that was accepted last, within the window.

    `rows` come in the order of the blocks, with the last one that the log knows.
    """
    last: dict[bytes, tuple[int, int, int | None, int]] = {}
    found: list[_Duplicate] = []
    for place, index, digest, message_id, known_at in rows:
        if digest not in last and message_id is not None:
            last[digest] = (0, 0, message_id, known_at)
        earlier = last.get(digest)
        if earlier is not None and abs(earlier[3] - accepted[place]) < windows[place]:
            found.append((place, index, *earlier[:3]))
        elif earlier is None or earlier[3] <= accepted[place]:
            last[digest] = (place, index, None, accepted[place])
    return found


def _resolve(named: Sequence[_Piece], found: Sequence[_Duplicate]) -> None:
    """Say of each duplicate which message it repeats, now that all have their places."""
    gone = [[index for index, _ in piece.found] for piece in named]  # sorted, as they were found
    for piece in named:
        piece.found = []
    for place, index, earlier, earlier_index, known in found:
        before = bisect.bisect_left(gone[earlier], earlier_index)
        in_these = named[earlier].first + earlier_index - before
        named[place].found.append((index, in_these if known is None else known))
