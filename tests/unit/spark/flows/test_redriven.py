"""Redriven letters of a flow: back in the queue, once."""

import asyncio
from pathlib import Path

import pytest

from forebay import open_log
from forebay.log.memory import MemoryLog
from forebay.log.seam import Log
from forebay.log.values import Append, DeadLetter, Death, Group, Queue, dead_letter_body
from forebay.model import Message, pack
from forebay.spark.flows.redriven import push_again
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.spec import read_flows
from forebay.spark.flows.starting import tend
from forebay.spark.logs import close_all


async def lost(log: Log, *, ordered: bool = False) -> tuple[Queue, Group]:
    """A queue of two messages, of which a flow gave up the first, which is redriven."""
    queue = await log.create_queue("orders", {"ordered": ordered})
    group = await log.create_group(queue, "flow")
    messages = [Message(b"1", "p", "key-1", {"color": "red"}), Message(b"2", "p", "key-2")]
    await log.commit([Append.of(queue, messages)])
    letter = pack(queue.number, 1)
    body = dead_letter_body(Death(0, "bad", 3, messages[0]))
    await log.advance(group, 3, [DeadLetter(letter, 0, "bad", 3, body)])
    assert await log.redrive(group, [letter]) == [letter]
    return queue, group


async def pushed(log: Log, queue: Queue) -> list[Message]:
    return [message for block in await log.read(queue, 3) for message in block.decode()]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_redriven_letter_is_pushed_again_and_done(ordered: bool) -> None:  # noqa: FBT001 - a table
    async with MemoryLog() as log:
        queue, group = await lost(log, ordered=ordered)
        assert await push_again(log, queue, group, "clean") == 1
        (message,) = await pushed(log, queue)
        assert (message.payload, message.partition, message.headers) == (b"1", "p", {"color": "red"})
        assert message.transaction_id is not None
        assert message.transaction_id.startswith("key-1/again-")
        ((books,),) = (list(q.groups) for q in (await log.stats()).queues)
        assert (books.done, books.ready, books.deferred, books.dead, books.difference) == (2, 1, 0, 0, 0)


async def test_nothing_is_pushed_twice() -> None:
    async with MemoryLog() as log:
        queue, group = await lost(log)
        assert [await push_again(log, queue, group, "clean") for _ in range(3)] == [1, 0, 0]
        assert len(await pushed(log, queue)) == 1


async def test_who_ended_in_the_middle_is_followed() -> None:
    async with MemoryLog() as log:
        queue, group = await lost(log)
        assert len((await log.due(group, "flow/clean")).claims) == 1  # and then its program was killed
        assert await push_again(log, queue, group, "clean") == 1
        assert [m.payload for m in await pushed(log, queue)] == [b"1"]


async def test_a_flow_that_goes_on_meanwhile_leaves_the_letter_where_it_is() -> None:
    async with MemoryLog() as log:
        queue, group = await lost(log)
        await log.commit([Append.of(queue, [Message(b"3")])])
        await log.advance(group, 4)
        assert await push_again(log, queue, group, "clean") == 1


async def test_a_pipeline_pushes_what_was_redriven_and_says_how_much_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_log(url) as log:
        queue, _ = await lost(log)
    file = tmp_path / "flows.yaml"
    file.write_text(
        "flows:\n"
        "  - {name: clean, type: TRANSFORM, source: {queue: orders, group: flow}, sink: {queue: clean}}\n"
        "  - {name: other, type: TRANSFORM, source: {queue: none}, sink: {queue: clean}}\n"
    )
    around = Surroundings(opener=open_log, url=url, credentials={}, checkpoints=tmp_path, folder=tmp_path)
    spec = read_flows(file)
    assert await asyncio.to_thread(tend, around, spec) == {"clean": 1, "other": 0}
    assert await asyncio.to_thread(tend, around, spec) == {"clean": 1, "other": 0}
    close_all()
    async with open_log(url) as log:
        assert [m.payload for m in await pushed(log, queue)] == [b"1"]
