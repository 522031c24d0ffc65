"""The room for unread answers: in all and by key; freed memory goes back to the system."""

import asyncio

import pytest

from forebay.api.heap import HeapTrim
from forebay.api.keys import ANYONE, Key
from forebay.api.settings import ServerLimits
from forebay.api.unread import READS_AT_ONCE, UnreadAnswers
from forebay.model import Unavailable


def key(id: str) -> Key:
    """A key that may do everything."""
    return Key(id=id, name=id, digest="0" * 64, scopes=("admin",), created_at=0)


FIRST, SECOND = key("first000"), key("second00")


def unread(total: int = 10_000, per_key: int | None = None) -> UnreadAnswers:
    """Room for so many bytes."""
    return UnreadAnswers(ServerLimits(unread_bytes_max=total, key_unread_bytes_max=per_key))


async def test_an_answer_of_any_size_is_held_when_there_is_room_and_none_beyond_the_limit() -> None:
    answers = unread(10_000, 10_000)
    answers.check(FIRST)
    answers.hold(FIRST, 1_000_000)
    with pytest.raises(Unavailable, match="wait for their clients") as refused:
        answers.check(SECOND)
    assert refused.value.retry_after_seconds == 1.0
    answers.give_back(FIRST, 1_000_000)
    answers.check(SECOND)
    assert (answers.bytes, answers.refused) == (0, 1)


async def test_a_key_takes_half_of_the_room_and_leaves_the_rest_to_others() -> None:
    answers = unread(10_000)
    answers.hold(FIRST, 5_000)
    with pytest.raises(Unavailable, match="key first000"):
        answers.check(FIRST)
    answers.check(SECOND)


async def test_the_limit_of_a_key_can_be_set() -> None:
    answers = unread(10_000, 2_000)
    answers.hold(FIRST, 1_999)
    answers.check(FIRST)
    answers.hold(FIRST, 1)
    with pytest.raises(Unavailable, match="key first000"):
        answers.check(FIRST)


async def test_without_keys_everyone_shares_all_of_the_room() -> None:
    answers = unread(10_000)
    answers.hold(ANYONE, 9_999)
    answers.check(ANYONE)


async def test_reads_load_a_few_at_a_time_and_those_that_waited_look_again() -> None:
    answers, running, full, go = unread(), 0, asyncio.Event(), asyncio.Event()

    async def read() -> None:
        nonlocal running
        async with answers.reading(FIRST):
            running += 1
            if running >= READS_AT_ONCE:
                full.set()
            await go.wait()
            answers.hold(FIRST, 5_000)

    reads = [asyncio.create_task(read()) for _ in range(READS_AT_ONCE + 3)]
    await full.wait()
    assert running == READS_AT_ONCE
    go.set()
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * READS_AT_ONCE + [Unavailable] * 3


async def test_freed_memory_goes_back_once_for_many_answers() -> None:
    loop, trimmed, calls = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    def trim(pad: int) -> int:
        calls.append(pad)
        loop.call_soon_threadsafe(trimmed.set)
        return 1

    heap = HeapTrim(trim, seconds=0.01)
    heap.freed(1 << 20)
    for _ in range(10):
        heap.freed(32 << 20)
    await trimmed.wait()
    assert calls == [0]
