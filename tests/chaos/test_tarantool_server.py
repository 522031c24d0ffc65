"""A server whose log is in Tarantool, which is killed: pushes go on, and all of them arrive once."""

import asyncio

import pytest

import forebay
from forebay.model import Unavailable
from tests.servers import ForebayServer, TarantoolServer

pytestmark = pytest.mark.chaos


async def test_pushes_go_on_while_tarantool_is_killed_and_all_arrive(tarantool: TarantoolServer) -> None:
    with ForebayServer(tarantool.url) as server:
        async with asyncio.timeout(60), forebay.open(server.url) as store:
            await store.create_queue("orders")
            names = [b"%d" % number for number in range(60)]
            await store.put_task("orders", *names[:20])
            tarantool.kill()
            for name in names[20:40]:
                await store.put_task("orders", name)
            tarantool.start()
            for name in names[40:]:
                await store.put_task("orders", name)
            taken: list[bytes] = []
            while len(taken) < len(names):
                try:
                    tasks = await store.get_task("orders", 30, wait_seconds=1)
                    await store.done_task(tasks)
                except Unavailable:
                    continue
                taken += [task.data for task in tasks]
            assert sorted(taken, key=int) == names
