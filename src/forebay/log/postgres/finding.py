"""Finding one message in PostgreSQL: its block, and where every group has it, in one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay.log.claiming import decode_outcome
from forebay.log.finding import OUTCOMES_MAX, first_claim, has, is_about, soonest
from forebay.log.postgres.rows import group_of_row, queue_of_row
from forebay.log.postgres.writing import from_bits
from forebay.log.registry import unknown_queue
from forebay.log.values import DeadLetter, Found, Letter, OpenClaim, Outcome, Standing, StoredBlock
from forebay.model import pack, queue_of

if TYPE_CHECKING:
    import asyncpg

    from forebay.log.postgres.database import Connection, Database


async def find(database: Database, sql: Mapping[str, str], now: int | None, message_id: int) -> Found:
    """Return where a message is, for every group of its queue."""
    number = queue_of(message_id)
    async with database.transaction(isolation="repeatable_read", readonly=True) as connection:
        queue = await connection.fetchrow(sql["queue_found"], number)
        if queue is None:
            raise unknown_queue(f"number {number}", ())
        at = now or await connection.fetchval(sql["now"])
        block = None
        if message_id >= pack(number, queue["floor"]):
            block = _block(await connection.fetchrow(sql["block_of"], message_id), message_id)
        partition = "" if block is None else block.partition
        groups = await connection.fetch(sql["groups_found"], number, partition)
        found = await _Rows.read(connection, sql, [row["number"] for row in groups], message_id, block)
    return Found(
        at=at,
        queue=queue_of_row(queue),
        next=queue["next"],
        block=block,
        standings=[found.standing(row, message_id, block, ordered=queue["ordered"]) for row in groups],
    )


def _block(row: asyncpg.Record | None, message_id: int) -> StoredBlock | None:
    if row is None or row["last"] - row["count"] >= message_id:
        return None
    last, count, block_id, appended_at, partition, body = row
    return StoredBlock(last - count + 1, count, block_id.bytes, appended_at, partition, body)


class _Rows:
    """What was read of a message, by group."""

    def __init__(self) -> None:
        self.claims: dict[int, list[OpenClaim]] = defaultdict(list)
        self.letters: dict[int, Letter] = {}
        self.outcomes: dict[int, list[Outcome]] = defaultdict(list)
        self.corrupt = False

    @classmethod
    async def read(
        cls,
        connection: Connection,
        sql: Mapping[str, str],
        groups: list[int],
        message_id: int,
        block: StoredBlock | None,
    ) -> _Rows:
        """Read claims, letters and outcomes of groups."""
        rows = cls()
        for row in await connection.fetch(
            sql["claims_at"], groups, first_claim(message_id, block), message_id
        ):
            offset = message_id - row["first"]
            if not has(from_bits(row["done"]), offset):
                handed = has(from_bits(row["handed"]), offset)
                claim = OpenClaim(row["owner"], row["due_at"], row["attempts"], handed)
                rows.claims[row["grp"]].append(claim)
        for group, died_at, reason, attempts, body, state, changed_at in await connection.fetch(
            sql["letters_at"], groups, message_id
        ):
            letter = DeadLetter(message_id, died_at, reason, attempts, body)
            rows.letters[group] = Letter(letter, state, changed_at)
        for group, *entry in await connection.fetch(sql["outcomes_at"], groups, message_id, OUTCOMES_MAX):
            if is_about(outcome := decode_outcome(*entry), message_id):
                rows.outcomes[group].append(outcome)
        rows.corrupt = await connection.fetchval(sql["quarantined_at"], message_id)
        return rows

    def standing(
        self, row: asyncpg.Record, message_id: int, block: StoredBlock | None, *, ordered: bool
    ) -> Standing:
        """Where the message is for the group of a row."""
        group = group_of_row(row)
        lane = row["lane"] or pack(group.queue, group.start)
        position = lane if ordered else pack(group.queue, row["position"])
        return Standing(
            group=group,
            claimed=block is None or message_id < position,
            claim=soonest(self.claims[group.number]),
            letter=self.letters.get(group.number),
            corrupt=self.corrupt,
            outcomes=self.outcomes[group.number][::-1],
        )
