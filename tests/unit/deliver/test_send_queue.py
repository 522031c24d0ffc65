"""A send queue holds what it promised and no more, in order, and tells each pusher the truth."""

import asyncio
import errno
import threading
from collections.abc import Sequence

import pytest

from forebay.deliver import memory_failover, memory_queue, send_queue
from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.entry import Entry
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.memory_queue import MemoryQueue
from forebay.model import ForebayError, Full, Rejected, TooLarge, Unavailable
from tests.unit.deliver.queues import QueueRig, a_queue


async def take_all(rig: QueueRig, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        entry = await rig.queue.take()
        found.append(entry.data)
        rig.queue.done(entry)
    return found


async def test_entries_come_out_in_order_and_leave_the_disk_when_settled() -> None:
    async with a_queue() as rig:
        for number in range(20):
            await rig.queue.push(b"%d" % number)
        assert rig.queue.size == 20
        assert await take_all(rig, 20) == [b"%d" % number for number in range(20)]
        assert rig.queue.size == rig.queue.room.bytes_held == 0
    assert rig.backing.entry_count == 0


async def test_a_taker_wakes_when_something_arrives() -> None:
    async with a_queue() as rig:
        taking = asyncio.create_task(rig.queue.take())
        await asyncio.sleep(0)
        await rig.queue.push(b"x")
        assert (await taking).data == b"x"


async def test_a_cancelled_taker_leaves_its_entry_to_the_next() -> None:
    async with a_queue() as rig:
        first, second = (asyncio.create_task(rig.queue.take()) for _ in range(2))
        await asyncio.sleep(0)
        rig.queue._wake_takers(1)  # both may be asked to look: the one that is cancelled passes it on
        first.cancel()
        await rig.queue.push(b"x")
        assert (await second).data == b"x"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_pushes_that_come_while_a_round_runs_share_the_next_one() -> None:
    async with a_queue() as rig:
        entered, go = threading.Event(), threading.Event()
        groups: list[int] = []
        push = rig.backing.push

        def slow() -> None:
            entered.set()
            go.wait()

        rig.backing.before_push = slow

        def counting(datas: Sequence[bytes]) -> range:
            groups.append(len(datas))
            return push(datas)

        rig.backing.push = counting  # type: ignore[method-assign]
        first = asyncio.create_task(rig.queue.push(b"first"))
        await asyncio.to_thread(entered.wait)
        others = [asyncio.create_task(rig.queue.push(b"other")) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, *others)
        assert groups == [1, 50]


async def test_a_retry_keeps_its_id_its_time_its_attempts_and_its_place() -> None:
    async with a_queue() as rig:
        await rig.queue.push(b"a")
        rig.clock.now += 5_000_000
        await rig.queue.push(b"b")
        first = await rig.queue.take()
        assert rig.queue.oldest_seconds() == 5
        rig.queue.retry(first, 0.0)
        again = await rig.queue.take()
        assert again is first
        assert (again.sequence, again.attempts, again.enqueued_at_us) == (0, 1, 1_000_000)
        rig.queue.release(again)
        assert (await rig.queue.take()) is first
        assert first.attempts == 1


async def test_what_waits_for_its_next_attempt_holds_up_nobody() -> None:
    async with a_queue() as rig:
        for data in (b"a", b"b"):
            await rig.queue.push(data)
        rig.queue.retry(await rig.queue.take(), 3600)
        assert (await rig.queue.take()).data == b"b"
        assert rig.queue.take_now() is None


@pytest.mark.parametrize("limit", [{"max_size": 7}, {"max_bytes": 70}])
async def test_limits_hold_exactly_however_many_push_at_once(limit: dict[str, int]) -> None:
    async with a_queue(full_behavior="drop_newest", **limit) as rig:
        results = await asyncio.gather(
            *(rig.queue.push(b"%010d" % number) for number in range(100)), return_exceptions=True
        )
        refused = [result for result in results if isinstance(result, Full)]
        assert len(refused) == 93
        assert rig.queue.size == rig.backing.entry_count == 7
        assert rig.queue.dropped == {"newest": 93}
        assert len(await take_all(rig, 7)) == 7


async def test_drop_oldest_keeps_the_newest_and_counts_the_others() -> None:
    async with a_queue(max_size=5) as rig:
        for number in range(12):
            await rig.queue.push(b"%d" % number)
            assert rig.queue.size <= 5
        assert rig.queue.dropped == {"oldest": 7}
        assert await take_all(rig, 5) == [b"7", b"8", b"9", b"10", b"11"]


async def test_drop_oldest_makes_room_in_bytes_and_spares_what_is_being_sent() -> None:
    async with a_queue(max_bytes=100) as rig:
        for _ in range(10):
            await rig.queue.push(b"x" * 10)
        sending = await rig.queue.take()
        await rig.queue.push(b"y" * 35)
        assert rig.queue.dropped == {"oldest": 4}
        assert rig.queue.room.bytes_held == 95
        rig.queue.done(sending)
        assert (await take_all(rig, 6))[-1] == b"y" * 35


async def test_when_all_is_being_sent_the_newcomer_is_refused() -> None:
    async with a_queue(max_size=1) as rig:
        await rig.queue.push(b"a")
        entry = await rig.queue.take()
        with pytest.raises(Full):
            await rig.queue.push(b"b")
        rig.queue.done(entry)
        await rig.queue.push(b"c")


async def test_drop_oldest_under_concurrency_never_exceeds_its_limits() -> None:
    async with a_queue(max_size=8, max_bytes=64) as rig:
        seen = []

        async def pusher(number: int) -> None:
            for step in range(20):
                await rig.queue.push(b"%d" % (number * step) + b"." * (number % 7))
                seen.append((rig.queue.size, rig.queue.room.bytes_held))

        await asyncio.gather(*(pusher(number) for number in range(10)))
        assert max(size for size, _ in seen) <= 8
        assert max(held for _, held in seen) <= 64
        assert rig.queue.dropped["oldest"] + rig.queue.size == 200 - rig.queue.dropped["newest"]


async def test_an_entry_over_the_limit_is_rejected_and_nothing_is_dropped() -> None:
    async with a_queue(max_bytes=10) as rig:
        await rig.queue.push(b"kept")
        with pytest.raises(TooLarge):
            await rig.queue.push(b"x" * 11)
        assert rig.queue.size == 1
        assert not rig.queue.dropped


async def test_block_waits_for_room_in_the_order_of_asking() -> None:
    async with a_queue(max_size=1, full_behavior="block") as rig:
        await rig.queue.push(b"a")
        second, third = (asyncio.create_task(rig.queue.push(data)) for data in (b"b", b"c"))
        assert await take_all(rig, 1) == [b"a"]
        await second
        assert not third.done()
        assert await take_all(rig, 2) == [b"b", b"c"]
        await third


async def test_block_ends_with_a_refusal() -> None:
    async with a_queue(max_size=1, full_behavior="block", block_timeout=0.01) as rig:
        await rig.queue.push(b"a")
        with pytest.raises(Full):
            await rig.queue.push(b"b")
        assert rig.queue.dropped == {"timeout": 1}
        assert rig.queue.size == 1


async def test_a_cancelled_wait_for_room_takes_none() -> None:
    async with a_queue(max_size=1, full_behavior="block") as rig:
        await rig.queue.push(b"a")
        waiting = asyncio.create_task(rig.queue.push(b"b"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await take_all(rig, 1) == [b"a"]
        await rig.queue.push(b"c")
        assert rig.queue.size == 1


async def test_a_backlog_larger_than_the_window_is_read_piece_by_piece() -> None:
    async with a_queue(inmemory_blocks=8) as rig:
        for number in range(100):
            await rig.queue.push(b"%d" % number)
        assert len(rig.queue._window) <= 8
        assert await take_all(rig, 100) == [b"%d" % number for number in range(100)]


# The disk doesn't take a push


async def test_always_acknowledges_nothing_that_is_only_in_memory() -> None:
    async with a_queue() as rig:
        rig.backing.error = Full("no space left")
        pushing = asyncio.create_task(rig.queue.push(b"a"))
        entry = await rig.queue.take()
        assert entry.data == b"a"
        assert not pushing.done()
        rig.queue.done(entry)  # delivered: that is as good as kept
        await pushing
        assert rig.queue.size == 0
        assert rig.queue.disk_full == 1


async def test_always_refuses_what_neither_disk_nor_destination_takes_in_time() -> None:
    async with a_queue(block_timeout=0.01) as rig:
        rig.backing.error = Full("no space left")
        with pytest.raises(Full):
            await rig.queue.push(b"a")
        assert rig.queue.dropped == {"disk_full": 1}
        assert rig.queue.size == rig.queue.volatile == 0
        assert rig.queue.take_now() is None


async def test_what_the_disk_refused_is_drained_to_it_when_it_takes_a_push() -> None:
    async with a_queue() as rig:
        rig.backing.error = OSError(errno.EIO, "broken")
        waiting = [asyncio.create_task(rig.queue.push(b"%d" % number)) for number in range(30)]
        while rig.queue.volatile < 30:
            await rig.queue._next_round()
        assert "broken" in str(rig.queue.problem)
        rig.backing.error = None
        await rig.queue.push(b"last")
        await asyncio.gather(*waiting)
        assert rig.queue.volatile == 0
        assert not rig.queue.problem
        assert rig.queue.size == rig.backing.entry_count == 31
        assert sorted(await take_all(rig, 31)) == sorted([*(b"%d" % n for n in range(30)), b"last"])


async def test_the_disk_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_failover, "DRAIN_SECONDS", 0.01)
    async with a_queue() as rig:
        rig.backing.error = Full("no space left")
        pushing = asyncio.create_task(rig.queue.push(b"a"))
        while not rig.queue.volatile:
            await rig.queue._next_round()
        rig.backing.error = None
        await pushing
        assert rig.backing.entry_count == 1


@pytest.mark.parametrize("durability", ["interval", "memory"])
async def test_weaker_durability_acknowledges_what_is_in_memory(durability: str) -> None:
    async with a_queue(durability=durability) as rig:
        rig.backing.error = Full("no space left")
        await rig.queue.push(b"a")
        assert rig.queue.volatile == 1
        rig.backing.error = None
    assert rig.backing.entry_count == 0  # closed
    assert not rig.queue.dropped


async def test_shutdown_brings_what_is_in_memory_to_the_disk_or_says_no() -> None:
    async with a_queue() as rig:
        rig.backing.error = Full("no space left")
        waiting = [asyncio.create_task(rig.queue.push(b"%d" % number)) for number in range(25)]
        while rig.queue.volatile < 25:
            await rig.queue._next_round()
        kept: list[bytes] = []
        rig.backing.error = None
        push = rig.backing.push

        def keeping(datas: Sequence[bytes]) -> range:
            kept.extend(datas)
            return push(datas)

        rig.backing.push = keeping  # type: ignore[method-assign]
        await rig.queue.close()
        await asyncio.gather(*waiting)
        assert len(kept) == 25
    async with a_queue() as rig:
        rig.backing.error = Full("no space left")
        pushing = asyncio.create_task(rig.queue.push(b"a"))
        while not rig.queue.volatile:
            await rig.queue._next_round()
        await rig.queue.close()
        with pytest.raises(Unavailable):
            await pushing
        assert rig.queue.dropped == {"shutdown": 1}


async def test_a_refused_push_spoils_no_other_of_its_group() -> None:
    async with a_queue() as rig:
        push = rig.backing.push

        def picky(datas: Sequence[bytes]) -> range:
            if b"bad" in datas:
                raise Rejected("bad")
            return push(datas)

        rig.backing.push = picky  # type: ignore[method-assign]
        results = await asyncio.gather(
            *(rig.queue.push(data) for data in (b"a", b"bad", b"b")), return_exceptions=True
        )
        assert isinstance(results[1], Rejected)
        assert await take_all(rig, 2) == [b"a", b"b"]
        assert rig.queue.size == 0


def test_the_memory_queue_drops_its_oldest_and_keeps_within_its_limits() -> None:
    queue = MemoryQueue(size_max=3, bytes_max=10)
    told: list[tuple[int, ForebayError | None]] = []
    for number in range(4):
        entry = Entry(number, 0, b"12", is_volatile=True)
        for evicted in queue.add(entry, lambda error, number=number: told.append((number, error))):  # type: ignore[misc]
            queue.remove(evicted, Full("full"))
    assert [number for number, _ in told] == [0]
    large = Entry(9, 0, b"x" * 11, is_volatile=True)
    assert queue.add(large, lambda _: None)[-1] is large
    assert (memory_queue.MEMORY_QUEUE_SIZE, memory_queue.MEMORY_QUEUE_BYTES) == (1000, 256_000_000)
    assert (memory_queue.DRAIN_SECONDS, memory_queue.DRAIN_COUNT) == (5.0, 10)


# Dead letters


async def test_a_buried_entry_is_kept_before_it_leaves_the_queue() -> None:
    async with a_queue() as rig:
        await rig.queue.push(b"a")
        rig.queue.bury(await rig.queue.take(), b"letter")
        while rig.queue.size:
            await rig.queue._next_round()
        assert rig.queue.dead_count == 1


async def test_an_entry_whose_letter_cant_be_kept_stays() -> None:
    async with a_queue(retry_interval=0.001) as rig:
        await rig.queue.push(b"a")
        rig.dead_backing.error = Full("no space left")
        rig.queue.bury(await rig.queue.take(), b"letter")
        again = await rig.queue.take()
        assert rig.queue.size == 1
        rig.dead_backing.error = None
        rig.queue.bury(again, b"letter")
        while rig.queue.size:
            await rig.queue._next_round()
        assert rig.queue.dead_count == 1


@pytest.mark.parametrize("limits", [{"size_max": 3}, {"bytes_max": 35}])
def test_dead_letters_are_bounded_and_the_newest_stay(limits: dict[str, int]) -> None:
    backing = MemoryBacking(lambda: 0)
    letters = DeadLetters(backing, **limits)
    for number in range(10):
        letters.add([b"%010d" % number])
    assert letters.count == 3
    assert letters.dropped == 7
    assert [int(record.data) for record in backing._records.values()] == [7, 8, 9]


async def test_a_disk_that_fails_at_the_end_keeps_nobody_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_queue() as rig:
        closed = []

        def failing() -> None:
            raise Full("no space left")

        rig.backing.close = failing  # type: ignore[method-assign]
        rig.dead_backing.close = lambda: closed.append(True)  # type: ignore[method-assign]
        await rig.queue.close()
    assert closed == [True]
    assert "no space left" in caplog.text


async def test_what_is_pushed_and_acked_is_synced_in_time_on_an_idle_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_queue, "_TICK_SECONDS", 3_600.0)
    async with a_queue(meta_sync_interval=0.01) as rig:
        ticks: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        rig.backing.after_tick = lambda: loop.call_soon_threadsafe(ticks.put_nowait, rig.backing.entry_count)
        async with asyncio.timeout(30):
            await rig.queue.push(b"a")
            assert [await ticks.get() for _ in range(2)] == [1, 1]
            rig.queue.done(await rig.queue.take())
            while await ticks.get():
                pass
            assert await ticks.get() == 0


async def test_a_closed_queue_takes_nothing() -> None:
    async with a_queue() as rig:
        await rig.queue.close()
        with pytest.raises(Unavailable):
            await rig.queue.push(b"a")
