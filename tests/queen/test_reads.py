"""Reading without consuming, through the client that can: by offset, and by what has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import datas, pop_all
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def queen(server: ForebayServer) -> AsyncIterator[Any]:
    """Give a client that reads by offset."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client


def _payloads(found: Any) -> list[Any]:
    return [record["payload"] for record in found["records"]]


async def test_partitions_are_read_from_their_beginning_and_nobody_notices(queen: Any, name: Name) -> None:
    queue = name("q/1")
    for turn in range(3):
        for partition in ("a", "b/ü"):
            items = [{"data": [partition, turn, n]} for n in range(4)]
            await queen.queue(queue).partition(partition).push(items)
    await queen.queue(queue).push([{"data": "default", "transactionId": "t1"}])
    found = await queen.queue(queue).fetch(["b/ü", "a", "Default", "nothing"])
    assert list(found) == ["b/ü", "a", "Default", "nothing"]
    assert _payloads(found["a"]) == [["a", turn, n] for turn in range(3) for n in range(4)]
    assert _payloads(found["Default"]) == ["default"]
    assert found["Default"]["records"][0]["transactionId"] == "t1"
    assert found["nothing"]["records"] == []
    assert found["a"]["nextOffset"] == found["a"]["highWatermark"]
    messages = await pop_all(lambda: queen.queue(queue).partition("a").batch(100), 12)
    assert datas(messages) == _payloads(found["a"])
    assert _payloads((await queen.queue(queue).fetch(["a"]))["a"]) == _payloads(found["a"])


async def test_who_remembers_the_next_offset_sees_only_what_is_new(queen: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).partition("a").push([{"data": 1}])
    first = (await queen.queue(queue).fetch(["a"]))["a"]
    nothing = (await queen.queue(queue).fetch(["a"], offsets={"a": first["nextOffset"]}))["a"]
    assert nothing["records"] == []
    await queen.queue(queue).partition("b").push([{"data": 2}])
    await queen.queue(queue).partition("a").push([{"data": 3}])
    found = await queen.queue(queue).fetch(["a"], offsets={"a": first["nextOffset"]})
    assert _payloads(found["a"]) == [3]
    past = await queen.queue(queue).fetch(["a"], offsets={"a": 1_000_000})
    assert past["a"]["records"] == []
    assert past["a"]["nextOffset"] > past["a"]["highWatermark"]


async def test_what_does_not_fit_in_one_answer_comes_in_the_next(queen: Any, name: Name) -> None:
    queue = name("q")
    for partition in ("a", "b", "c"):
        items = [{"data": "x" * 1_000 + str(n)} for n in range(20)]
        await queen.queue(queue).partition(partition).push(items)
    found = await queen.queue(queue).fetch(["a", "b", "c"], max_bytes=2_500)
    for partition in ("a", "b", "c"):
        assert [text[1_000:] for text in _payloads(found[partition])] == [str(n) for n in range(20)]


async def test_partitions_that_changed_since_are_listed_across_pages(queen: Any, name: Name) -> None:
    queue = name("q")
    items = [{"queue": queue, "partition": f"p{n:04d}", "payload": n} for n in range(1_500)]
    await queen._http_client.post("/api/v1/push", {"items": items})
    everything = await queen.queue(queue).changed_since()
    assert [one["name"] for one in everything["partitions"]] == [f"p{n:04d}" for n in range(1_500)]
    await queen.queue(queue).partition("p0007").push([{"data": "again"}])
    await queen.queue(queue).partition("new").push([{"data": "new"}])
    changed = await queen.queue(queue).changed_since(everything["safeTime"])
    names = {one["name"] for one in changed["partitions"]}
    assert {"p0007", "new"} <= names
    one = next(one for one in changed["partitions"] if one["name"] == "p0007")
    read = await queen.queue(queue).fetch(["p0007"], offsets={"p0007": one["lastOffset"]})
    assert _payloads(read["p0007"]) == ["again"]
    assert (await queen.queue(name("nothing")).changed_since())["partitions"] == []
