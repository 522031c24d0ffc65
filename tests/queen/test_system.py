"""Maintenance and traces through Queen's clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import datas, pop_all, until
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def admin(server: ForebayServer) -> AsyncIterator[Any]:
    """Give the older client's switches: the newer one has none for maintenance."""
    async with package("0.15.0").Queen(server.url) as client:
        yield client.admin


async def test_pushes_in_maintenance_come_after_it_once_and_in_order(
    queen: Any, admin: Any, name: Name
) -> None:
    queue = name("q")
    assert (await admin.set_maintenance_mode(True))["maintenanceMode"] is True
    try:
        for number in range(10):
            await queen.queue(queue).push([{"data": number, "transactionId": f"{queue}-{number}"}])
        assert (await admin.get_maintenance_mode())["bufferedMessages"] == 10
        assert await queen.queue(queue).batch(10).wait(False).pop() == []
    finally:
        assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False
    again = await queen.queue(queue).push([{"data": "again", "transactionId": f"{queue}-0"}])
    assert again[0]["status"] in ("duplicate", "buffered")
    assert datas(await pop_all(lambda: queen.queue(queue).batch(20), 10)) == list(range(10))


async def test_pops_in_maintenance_bring_nothing(queen: Any, admin: Any, name: Name) -> None:
    queue = name("q")
    await queen.queue(queue).push([{"data": 1}])
    assert (await admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
    try:
        assert await queen.queue(queue).batch(10).wait(False).pop() == []
        assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is True
    finally:
        await admin.set_pop_maintenance_mode(False)
    assert datas(await pop_all(lambda: queen.queue(queue).batch(10), 1)) == [1]


async def test_a_consumer_leaves_traces_that_are_found_again(queen: Any, name: Name) -> None:
    queue, flow, admin = name("q"), name("flow"), queen.admin
    await queen.queue(queue).push([{"data": {"n": 1}}])
    seen: list[Any] = []

    async def work(message: Any) -> None:
        for step in ("begin", "end"):
            config = {"traceName": [flow], "eventType": step, "data": {"step": step}}
            seen.append((message, await message["trace"](config)))
        assert (await message["trace"]({"no": "data"}))["success"] is False

    await queen.queue(queue).limit(1).each().consume(work)
    await until(lambda: len(seen) == 2, "two traces")
    assert all(result["success"] for _, result in seen)
    message = seen[0][0]
    of_message = await admin.get_traces_for_message(message["partitionId"], message["transactionId"])
    assert [trace["event_type"] for trace in of_message["traces"]] == ["begin", "end"]
    by_name = await admin.get_traces_by_name(flow, limit=10)
    assert [trace["data"]["step"] for trace in by_name["traces"]] == ["begin", "end"]
    names = await admin.get_trace_names(limit=100)
    assert flow in [row["trace_name"] for row in names["trace_names"]]
