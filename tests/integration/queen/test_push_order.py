"""A push of many items keeps their order within a partition, however many blocks it takes."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.api.queen import pushing
from forebay.model import Block, Full, Message
from tests.integration.queen.steps import Asker

MANY = 12_000


def test_a_large_push_with_duplicates_keeps_its_order(asker: Asker) -> None:
    def item(number: int) -> dict[str, Any]:
        name = str(number)
        return {"queue": asker.queue, "partition": "p", "payload": number, "transactionId": name}

    asker.post("/api/v1/push", {"items": [item(7)]})
    answers = asker.post("/api/v1/push", {"items": [item(number) for number in range(MANY)]})
    assert [answer["status"] for answer in answers].count("queued") == MANY - 1
    found: list[int] = []
    while messages := asker.pop("batch=5000&autoAck=true"):
        found += [message["data"] for message in messages]
    assert found == [7, *(number for number in range(MANY) if number != 7)]


async def test_what_comes_after_a_failure_of_its_partition_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[list[int]] = []

    async def append(_desk: object, piece: pushing.Piece, _few: object, *, alone: bool) -> None:
        assert not alone
        if piece.indexes == [1]:
            raise Full("no room")
        written.append(piece.indexes)

    monkeypatch.setattr(pushing, "_append", append)
    message = Message(b"1")
    lane = [pushing.Piece("q", "q", "p", [n], [message], Block.of([message])) for n in range(4)]
    nobody: Any = None
    answers = await pushing._append_lane(nobody, lane, nobody, alone=False)
    assert written == [[0]]
    assert [type(answer) for answer in answers] == [type(None), Full, Full, Full]
