"""Publishing a stage: what is there of it, and what was published of it before.

The bodies come once, to be looked at; what is written of them is said by their ids, since they are there
already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from forebay.log.claiming import nothing_staged
from forebay.log.intake import Answer, resolve
from forebay.log.tarantool.rows import message_id, raw
from forebay.log.tarantool.server import Refused, Server, text_out
from forebay.log.tarantool.writing import NotStaged
from forebay.log.values import ROOM, Append, Receipt
from forebay.model import decode

READ_AT_ONCE: Final = 1_000
"""Staged blocks that one call reads at most."""


class Staged(msgspec.Struct, frozen=True):
    """A block, and the number of the stage that has it."""

    append: Append
    stage: int


async def publish(
    server: Server,
    stage: str,
    ids: Sequence[bytes],
    commit: Callable[[Sequence[Staged]], Awaitable[Receipt]],
    *,
    replayed: bool,
) -> Receipt:
    """Commit what is staged under these ids; what was published before is answered again."""
    while True:
        pieces = await server.call("staged", text_out(stage), list(ids))
        if missing := sum(piece[0] == "missing" for piece in pieces):
            raise nothing_staged(stage, missing)
        wanted = [(block_id, p[1], p[2]) for block_id, p in zip(ids, pieces, strict=True) if p[0] == "staged"]
        try:
            receipt = await commit(await _read(server, wanted, replayed=replayed))
        except NotStaged:  # somebody else has published it meanwhile
            continue
        fresh = iter(receipt.appended)
        return Receipt([next(fresh) if p[0] == "staged" else resolve(_known(*p[1:])) for p in pieces])


async def _read(server: Server, wanted: Sequence[tuple[bytes, int, int]], *, replayed: bool) -> list[Staged]:
    found: list[Staged] = []
    while len(found) < len(wanted):
        left = wanted[len(found) : len(found) + READ_AT_ONCE]
        stage = left[0][2]
        try:
            bodies = await server.call(
                "staged_bodies", stage, [block_id for block_id, *_ in left], ROOM.bytes
            )
        except Refused:
            raise NotStaged from None
        for (_, queue, _), body in zip(left, map(raw, bodies), strict=False):
            found.append(Staged(Append(queue, decode(body), body, replayed=replayed), stage))
    return found


def _known(queue: int, first: int, count: int, dropped: str | None) -> Answer:
    """What a block id was answered when it was written."""
    return Answer(
        message_id(queue, first), count, known=True, dropped=None if dropped is None else raw(dropped)
    )
