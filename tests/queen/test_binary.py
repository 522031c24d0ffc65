"""A client that writes binary bodies, and one that asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import datas
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
async def queen(server: ForebayServer, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Give a client that writes binary bodies, and asks for such answers."""
    packed = request.param
    options = {"binary_push": True, "push_compression": packed, "framed_pop": packed}
    async with package("2.6.0").Queen(server.url, **options) as client:
        yield client


async def test_pushes_pops_and_transactions_work_as_with_json(queen: Any, name: Name) -> None:
    source, target = name("q ü"), name("out")
    items = [{"data": {"n": n, "text": "ü" * n}, "transactionId": f"t{n}"} for n in range(5)]
    results = await queen.queue(source).partition("p").push(items)
    assert [result["status"] for result in results] == ["queued"] * 5
    again = await queen.queue(source).partition("p").push(items[:1])
    assert (again[0]["status"], again[0]["message_id"]) == ("duplicate", results[0]["message_id"])
    messages = await queen.queue(source).partition("p").batch(10).wait(False).pop()
    assert datas(messages) == [item["data"] for item in items]
    bundle = queen.transaction().queue(target).push([{"data": 1}]).ack(messages)
    done = await bundle.queue(target).partition("b").push([{"data": 2}, {"data": 3}]).commit()
    assert [one["type"] for one in done["results"]] == ["push", *["ack"] * 5, "push", "push"]
    found = await queen.queue(target).batch(10).partitions(5).wait(False).pop()
    assert sorted(datas(found)) == [1, 2, 3]
