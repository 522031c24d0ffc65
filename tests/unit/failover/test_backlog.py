"""Who lines up behind the spool, and that it comes to an end."""

import asyncio

from forebay.failover import backlog as module
from forebay.failover.backlog import Backlog
from forebay.model import Block, Message
from forebay.spool.names import FileName

BEFORE = FileName("failover", "019a0c11-8021", "finished")


def block_of(*partitions: str, size: int = 1) -> Block:
    return Block.of([Message(b"{}", partition) for partition in partitions for _ in range(size)])


def test_a_partition_is_free_again_when_the_last_of_it_is_in_the_log() -> None:
    backlog = Backlog(little=10)
    first, second = block_of("a", "b"), block_of("a")
    backlog.add("orders", first)
    backlog.add("orders", second)
    assert not backlog.is_free("orders", ["c", "a"])
    assert backlog.is_free("orders", ["c"])
    assert backlog.is_free("events", ["a"])
    backlog.remove("orders", first)
    assert backlog.is_free("orders", ["b"])
    assert not backlog.is_free("orders", ["a"])
    backlog.remove("orders", second)
    assert backlog.is_free("orders", ["a"])
    assert backlog.events == 0
    assert backlog.queues == {}


def test_nothing_is_free_before_what_was_there_at_the_start_is_through() -> None:
    backlog = Backlog([BEFORE], little=10)
    assert not backlog.is_free("orders", ["a"])
    assert backlog.is_before(BEFORE)
    backlog.read(BEFORE)
    assert backlog.is_free("orders", ["a"])


def test_of_a_queue_with_very_many_partitions_all_line_up() -> None:
    backlog = Backlog(little=10)
    many = block_of(*(str(n) for n in range(module.PARTITIONS_MAX + 1)))
    backlog.add("orders", many)
    assert not backlog.is_free("orders", ["never pushed to"])
    backlog.remove("orders", many)
    assert backlog.is_free("orders", ["0"])


def test_fewer_line_up_than_are_replayed() -> None:
    backlog = Backlog(little=10)
    large, replayed = block_of("a", size=1_000), block_of("a", size=100)
    backlog.add("orders", large)
    backlog.add("orders", replayed)
    backlog.begin()
    assert backlog.admits(10)
    assert not backlog.admits(11), "nothing was replayed yet"
    backlog.remove("orders", replayed)
    assert backlog.admits(35)
    assert not backlog.admits(36)


def test_when_little_is_left_one_waits_for_the_rest() -> None:
    backlog = Backlog(little=10)
    backlog.add("orders", block_of("a", size=10))
    backlog.begin()
    assert not backlog.admits(1)


async def test_whoever_waits_is_told_of_every_change() -> None:
    backlog = Backlog(little=10)
    backlog.add("orders", block_of("a"))
    for change in (backlog.move, backlog.clear):
        waiting = asyncio.create_task(backlog.moved())
        await asyncio.sleep(0)
        change()
        await waiting
    assert backlog.is_free("orders", ["a"])
