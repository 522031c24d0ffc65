"""The write: many items in one call of forebay.write(), and its answers back to the items.

The function wants appends by queue and settlements by group and claim, so that locks are taken in one
order; within a queue or a claim the order of the items is kept. Settlements that come twice under one id
are written once, and answered twice. Records come after it: here only their commit's id is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from asyncpg import BitString, PostgresError

from forebay.log.claiming import encode_outcome
from forebay.log.delays import Delays
from forebay.log.groupcommit import Item, Result, is_whole, write_whole
from forebay.log.intake import Answer, Intake
from forebay.log.postgres.database import PACKAGE
from forebay.log.registry import unknown_queue
from forebay.log.sqlfile import load_statements
from forebay.log.values import Mark, Settlement, dead_letter_body
from forebay.model import Rejected, bitmap, id_time, mint

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection

ID_SKEW_US: Final = 86_400 * 1_000_000
"""How far ahead of the log's clock the time in an id may be; forebay.write() refuses the rest."""

_SHARED: Final = 6
_OF_APPENDS: Final = 10
_OF_SETTLEMENTS: Final = 20
"""Arguments of forebay.write(), in this order: most writes have only appends, or only settlements."""


def _write_of(*, appends: bool, settlements: bool) -> str:
    """The call of forebay.write() without the arguments that would be empty."""
    places = iter(range(1, 1 + _SHARED + _OF_APPENDS + _OF_SETTLEMENTS))
    present = [True] * _SHARED + [appends] * _OF_APPENDS + [settlements] * _OF_SETTLEMENTS
    arguments = ", ".join(f"${next(places)}" if is_there else "'{}'" for is_there in present)
    return f"SELECT * FROM forebay.write({arguments})"  # noqa: S608 - placeholders only


_WRITES: Final = {
    (appends, settlements): _write_of(appends=appends, settlements=settlements)
    for appends in (False, True)
    for settlements in (False, True)
}
MARK: Final = "SELECT forebay.mark($1, $2, $3, $4)"
ADD_DELAYED: Final = load_statements(PACKAGE)["add_delayed"]

_NO_DIGEST: Final = bytes(16)
_MIRROR: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def to_bits(bits: bytes, count: int) -> BitString:
    """Our bitmap as PostgreSQL's varbit: it counts bits from the other end of each byte."""
    return BitString.frombytes(bits.translate(_MIRROR), bitlength=count)


def from_bits(bits: BitString) -> bytes:
    """PostgreSQL's varbit as our bitmap."""
    return bytes(bits.bytes).translate(_MIRROR)


async def write(
    connection: Connection, items: Sequence[Item], now: int | None, *, lazy: bool = False
) -> list[Result | Exception]:
    """Write the items in the connection's transaction, or in one of its own.

    What is written lazily is not on disk when this returns: see `durability`.
    """
    appends = [(i, n, intake) for i, item in enumerate(items) for n, intake in enumerate(item.appends)]
    appends.sort(key=lambda entry: entry[2].queue)
    firsts: dict[bytes, int] = {}
    settlers = [
        i
        for i, item in enumerate(items)
        if (item.settlements or item.records) and firsts.setdefault(item.id, i) == i
    ]
    settlements = [
        (k, n, s) for k, i in enumerate(settlers, start=1) for n, s in enumerate(items[i].settlements)
    ]
    settlements.sort(key=lambda entry: (entry[2].group, entry[2].first, entry[2].count))
    ids = [intake.id for _, _, intake in appends] + [items[i].id for i in settlers]
    arguments: list[Any] = [
        lazy,
        _are_plain([intake for _, _, intake in appends]),
        _are_whole([settlement for _, _, settlement in settlements]),
        now,
        *ids_between(ids),
    ]
    if appends:
        arguments += _append_columns([intake for _, _, intake in appends])
    if settlers:
        arguments += (
            [UUID(bytes=items[i].id) for i in settlers],
            [k for k, _, _ in settlements],
            [n for _, n, _ in settlements],
            *_settlement_columns([s for _, _, s in settlements]),
        )
    delays = {place: found for place, (_, _, i) in enumerate(appends) if (found := i.delays) is not None}
    call = _WRITES[bool(appends), bool(settlers)]
    try:
        if not delays:
            rows = await connection.fetch(call, *arguments)
        else:
            async with connection.transaction():
                rows = await connection.fetch(call, *arguments)
                written = [row for row in rows if row["kind"] == "appended" and row["count"]]
                late = [
                    (appends[row["ord"]][2], delays[row["ord"]], row["first"] + row["count"] - 1)
                    for row in written
                    if row["ord"] in delays
                ]
                await add_delayed(
                    connection, [(i.queue, len(i.block), i.partition, last, d) for i, d, last in late], now
                )
    except PostgresError as error:
        if error.sqlstate == "FB400":
            raise Rejected(str(error), hint="check the clock of the machine that minted it") from error
        raise
    conflicts = {items[i].id: late for i, late in zip(settlers, _conflicts(settlers, rows), strict=True)}
    return _results(items, appends, conflicts, rows)


async def add_delayed(
    connection: Connection, blocks: Sequence[tuple[int, int, str | None, int, Delays]], now: int | None
) -> None:
    """Write down start times: queue, count, partition, last message and delays of each block."""
    await connection.execute(
        ADD_DELAYED,
        now,
        [queue for queue, *_ in blocks],
        [delays.latest for *_, delays in blocks],
        [last for *_, last, _ in blocks],
        [count for _, count, *_ in blocks],
        [delays.earliest for *_, delays in blocks],
        [delays.count for *_, delays in blocks],
        [partition for _, _, partition, *_ in blocks],
        [delays.starts for *_, delays in blocks],
    )


async def append_all(connection: Connection, intakes: Sequence[Intake], now: int | None) -> None:
    """Append new blocks within a transaction, in their order and without their duplicates."""

    async def submit(item: Item) -> Result:
        part = connection.transaction()
        await part.start()
        (result,) = await write(connection, [item], now)
        if isinstance(result, Exception):
            raise result
        await (part.commit() if is_whole(item, result) else part.rollback())
        return result

    if intakes:
        await write_whole(submit, Item(mint(), intakes, atomic=True))


async def write_marks(connection: Connection, marks: Sequence[Mark]) -> list[int]:
    """Note marks of claims, lazily; the indexes of those whose claim is not held."""
    rows = await connection.fetch(
        MARK,
        [mark.group for mark in marks],
        [mark.token for mark in marks],
        [to_bits(mark.handed or bitmap.empty(mark.count), mark.count) for mark in marks],
        [to_bits(mark.returned or bitmap.empty(mark.count), mark.count) for mark in marks],
    )
    held = {row[0] for row in rows}
    return [i for i in range(len(marks)) if i not in held]


def _are_plain(intakes: list[Intake]) -> bool:
    """Whether these blocks can be written all at once, if none of their ids is known."""
    return len({i.id for i in intakes}) == len(intakes) and all(
        i.digests is None and len(i.block) and i.dropped is None for i in intakes
    )


def _are_whole(settlements: list[Settlement]) -> bool:
    """Whether each of these finishes all that its claim can hold, and no claim comes twice."""
    return len({s.token for s in settlements}) == len(settlements) and all(
        not s.deferred and not s.dead and bitmap.count(s.finished()) == s.count for s in settlements
    )


def ids_between(ids: list[bytes]) -> tuple[int, int]:
    """A time before which none of these ids can have been written, and the newest of their own times."""
    times = [id_time(i) for i in ids]
    known = [t for t in times if t is not None]
    since = min(known) - ID_SKEW_US if len(known) == len(times) and known else 0
    return since, max(known, default=0)


def _append_columns(intakes: list[Intake]) -> tuple[list[Any], ...]:
    return (
        list(range(len(intakes))),
        [i.queue for i in intakes],
        [UUID(bytes=i.id) for i in intakes],
        [len(i.block) for i in intakes],
        [i.partition for i in intakes],
        [i.body for i in intakes],
        [i.dropped for i in intakes],
        [digests_column(i) for i in intakes],
        [i.accepted_at for i in intakes],
        [i.flows for i in intakes],
    )


def digests_column(intake: Intake) -> bytes | None:
    """What stands for the transaction ids of a block: 16 bytes for each message."""
    return None if intake.digests is None else b"".join(d or _NO_DIGEST for d in intake.digests)


def _settlement_columns(settlements: list[Settlement]) -> tuple[list[Any], ...]:
    deferred = [(i, d) for i, s in enumerate(settlements, start=1) for d in s.deferred]
    dead = [(i, d) for i, s in enumerate(settlements, start=1) for d in s.dead]
    return (
        [s.group for s in settlements],
        [s.token for s in settlements],
        [to_bits(s.finished(), s.count) for s in settlements],
        [bitmap.count(s.done) for s in settlements],
        [bitmap.count(s.expired) for s in settlements],
        [encode_outcome(s) for s in settlements],
        [i for i, _ in deferred],
        [d.offset for _, d in deferred],
        [d.count for _, d in deferred],
        [d.due_at for _, d in deferred],
        [d.attempts for _, d in deferred],
        [d.prev_start_time for _, d in deferred],
        [i for i, _ in dead],
        [d.offset for _, d in dead],
        [d.reason.replace("\0", "\N{REPLACEMENT CHARACTER}") for _, d in dead],
        [d.attempts for _, d in dead],
        [dead_letter_body(d) for _, d in dead],
    )


def _conflicts(settlers: list[int], rows: list[asyncpg.Record]) -> list[Sequence[int]]:
    conflicts: list[Sequence[int]] = [()] * len(settlers)
    for row in rows:
        if row["kind"] == "settled":
            conflicts[row["ord"] - 1] = tuple(row["conflicts"] or ())
    return conflicts


def _results(
    items: Sequence[Item],
    appends: list[tuple[int, int, Intake]],
    conflicts: Mapping[bytes, Sequence[int]],
    rows: list[asyncpg.Record],
) -> list[Result | Exception]:
    answers: list[list[Answer]] = [[Answer()] * len(item.appends) for item in items]
    gone: dict[int, Exception] = {}
    for kind, place, first, count, dropped, found_index, found_id, _ in rows:
        if kind == "settled":
            continue
        i, n, intake = appends[place]
        if kind == "gone":
            gone[i] = unknown_queue(f"number {intake.queue}", ())
        elif kind == "found":
            answers[i][n] = Answer(found=tuple(zip(found_index, found_id, strict=True)))
        else:
            answers[i][n] = Answer(first, count, known=kind == "known", dropped=dropped)
    return [
        gone.get(i) or Result(answers[i], conflicts[item.id] if item.settlements else ())
        for i, item in enumerate(items)
    ]
