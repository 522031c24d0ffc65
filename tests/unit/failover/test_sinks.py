"""Where spooled blocks go: a store that refuses some of them, or all because of the key."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from forebay.failover.sinks import StoreSink
from forebay.log.values import Queue, QueueSettings
from forebay.model import Block, Forbidden, Message, Rejected, Unauthorized, Unavailable


class OrderedStore:
    """An ordered queue that refuses `bad`; blocks are known by their ids."""

    def __init__(self, *, may_look: bool = True) -> None:
        self.written: dict[bytes, list[bytes]] = {}
        self.may_look = may_look
        self.away: set[str] = set()
        self.going_on = asyncio.Event()

    async def append(self, queue: str, block: Block, *, replayed: bool) -> object:
        assert replayed
        if queue in self.away:
            raise Unavailable("not now")
        if self.away:
            await self.going_on.wait()
        if len(block.partition_table) > 1:
            raise Rejected("a block of an ordered queue holds one partition")
        if any(message.payload == b"bad" for message in block):
            raise Rejected("this is bad")
        self.written.setdefault(block.id, [message.payload for message in block])
        return None

    async def create_queue(self, name: str, settings: dict[str, Any] | None = None) -> object:
        raise AssertionError(name, settings)

    async def queue(self, name: str) -> Queue:
        if not self.may_look:
            raise Forbidden("the key is for pushing only")
        return Queue(1, name, QueueSettings(ordered=True), 0)

    def payloads(self) -> list[bytes]:
        return [payload for payloads in self.written.values() for payload in payloads]


def block_of(*messages: tuple[str, bytes]) -> Block:
    return Block.of([Message(payload, partition) for partition, payload in messages])


@pytest.mark.parametrize("may_look", [True, False])
async def test_of_partitions_that_were_spooled_together_only_what_is_bad_is_refused(
    *, may_look: bool
) -> None:
    store = OrderedStore(may_look=may_look)
    sink = StoreSink(store)
    blocks = [
        ("q", block_of(("a", b"1"), ("b", b"1"), ("b", b"bad"), ("b", b"2"), ("a", b"2"))),
        ("q", block_of(("a", b"3"))),
    ]
    for _ in range(2):  # again, and nothing is there twice
        refused = await sink.write(blocks)
        assert [(each.place, [message.payload for message in each.block]) for each in refused] == [
            (0, [b"bad"])
        ]
        assert sorted(store.payloads()) == [b"1", b"1", b"2", b"2", b"3"]
    assert store.payloads()[-1] == b"3"


@pytest.mark.parametrize("error", [Unauthorized("no key"), Forbidden("no scope")])
async def test_no_message_is_to_blame_for_the_key(error: Rejected, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_queue: str, _block: Block, *, replayed: bool) -> object:
        assert replayed
        raise error

    store = OrderedStore()
    monkeypatch.setattr(store, "append", refuse)
    with pytest.raises(type(error)):
        await StoreSink(store).write([("q", block_of(("a", b"1"), ("b", b"1")))])


async def test_nobody_writes_on_after_it_was_said_that_the_store_is_away() -> None:
    store = OrderedStore()
    store.away.add("gone")
    blocks: Sequence[tuple[str, Block]] = [("gone", block_of(("a", b"1"))), ("there", block_of(("a", b"2")))]
    writing = asyncio.create_task(StoreSink(store).write(blocks))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    store.going_on.set()
    with pytest.raises(Unavailable):
        await writing
    assert store.payloads() == [b"2"]
