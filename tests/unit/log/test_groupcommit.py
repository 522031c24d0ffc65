"""Group commit: sharing without waiting, and each write its own answer."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from forebay.log.groupcommit import GroupCommit, Item, Result
from forebay.log.intake import Answer, Intake
from forebay.log.values import Append, Queue, QueueSettings, Receipt, Settlement
from forebay.model import Block, Conflict, Limits, Message, Rejected, Unavailable, pack

QUEUE = Queue(3, "orders", QueueSettings(), 0)


def intake_of(*payloads: bytes, transaction_ids: Sequence[str] = ()) -> Intake:
    messages = [
        Message(payload, transaction_id=transaction_ids[i] if transaction_ids else None)
        for i, payload in enumerate(payloads)
    ]
    return Intake(Append.of(QUEUE, Block.of(messages)), QUEUE, Limits())


class FakeLog:
    """Counts sequence numbers; holds each flush until it is let go, when it is told to."""

    def __init__(self, *, held: bool = False) -> None:
        self.flushes: list[list[Item]] = []
        self.next = 1
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        self.faults: dict[bytes, Exception] = {}
        self.answer: Callable[[Intake], Answer | None] = lambda _: None
        self.conflicts: tuple[int, ...] = ()
        self.flush_fault: Exception | None = None
        if not held:
            self.gate.set()

    async def flush(self, items: list[Item]) -> list[Result | Exception]:
        self.flushes.append(items)
        self.entered.set()
        await self.gate.wait()
        if self.flush_fault is not None:
            fault, self.flush_fault = self.flush_fault, None
            raise fault
        return [self.write(item) for item in items]

    def write(self, item: Item) -> Result | Exception:
        for intake in item.appends:
            if intake.block.payloads and intake.block.payloads[0] in self.faults:
                return self.faults[intake.block.payloads[0]]
        answers = [self.answer(intake) or self.append(intake) for intake in item.appends]
        return Result(answers, self.conflicts if item.settlements else ())

    def append(self, intake: Intake) -> Answer:
        first, self.next = self.next, self.next + len(intake.block)
        return Answer(pack(3, first), len(intake.block), dropped=intake.dropped)


def start(commits: GroupCommit, *intakes: Intake, atomic: bool = False) -> asyncio.Task[Receipt]:
    """Begin a commit, without waiting for it."""
    return asyncio.create_task(commits.commit(intakes, (), None, atomic=atomic))


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lone_write_is_flushed_at_once() -> None:
    log = FakeLog()
    receipt = await GroupCommit(log.flush).commit([intake_of(b"a")], (), None, atomic=False)
    assert receipt.appended[0].ids() == [pack(3, 1)]
    assert len(log.flushes) == 1


async def test_one_write_after_another_is_never_left_waiting() -> None:
    log = FakeLog()
    commits = GroupCommit(log.flush)
    for _ in range(5):
        async with asyncio.timeout(5):
            await commits.commit([intake_of(b"a")], (), None, atomic=False)
    assert len(log.flushes) == 5


async def test_writes_that_come_during_a_flush_share_the_next() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush)
    first = start(commits, intake_of(b"a"))
    await log.entered.wait()
    others = [start(commits, intake_of(b"b", b"c")) for _ in range(10)]
    await settled()
    assert [len(items) for items in log.flushes] == [1]
    log.gate.set()
    receipts = await asyncio.gather(first, *others)
    assert [len(items) for items in log.flushes] == [1, 10]
    assert [receipt.appended[0].first for receipt in receipts] == [pack(3, n) for n in (1, *range(2, 22, 2))]


async def test_several_flights_go_at_once_but_no_more() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush, flights=2)
    tasks = [start(commits, intake_of(b"a"))]
    await settled()
    tasks.append(start(commits, intake_of(b"b")))
    await settled()
    tasks.append(start(commits, intake_of(b"c")))
    await settled()
    assert [len(items) for items in log.flushes] == [1, 1]
    log.gate.set()
    await asyncio.gather(*tasks)
    assert [len(items) for items in log.flushes] == [1, 1, 1]


async def test_a_bad_write_fails_by_itself() -> None:
    log = FakeLog(held=True)
    log.faults[b"bad"] = Rejected("bad")
    commits = GroupCommit(log.flush)
    tasks = [start(commits, intake_of(payload)) for payload in (b"a", b"bad", b"b")]
    log.gate.set()
    one, bad, two = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(one, Receipt)
    assert isinstance(bad, Rejected)
    assert isinstance(two, Receipt)


async def test_when_a_flush_is_refused_each_write_is_tried_alone() -> None:
    log = FakeLog()
    log.flush_fault = ValueError("one of them is bad")
    commits = GroupCommit(log.flush)
    tasks = [start(commits, intake_of(payload)) for payload in (b"a", b"b", b"c")]
    receipts = await asyncio.gather(*tasks)
    assert [len(items) for items in log.flushes] == [3, 1, 1, 1]
    assert [receipt.appended[0].first for receipt in receipts] == [pack(3, n) for n in (1, 2, 3)]


async def test_when_the_log_is_away_nothing_is_tried_again() -> None:
    log = FakeLog()
    log.flush_fault = Unavailable("away")
    commits = GroupCommit(log.flush)
    tasks = [start(commits, intake_of(payload)) for payload in (b"a", b"b")]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [Unavailable, Unavailable]
    assert len(log.flushes) == 1
    assert (await start(commits, intake_of(b"c"))).appended[0].count == 1


async def test_a_write_that_is_cancelled_while_it_waits_is_not_written() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush)
    first = start(commits, intake_of(b"a"))
    await log.entered.wait()
    unwanted, wanted = start(commits, intake_of(b"b")), start(commits, intake_of(b"c"))
    await settled()
    unwanted.cancel()
    await settled()
    log.gate.set()
    await asyncio.gather(first, wanted)
    assert unwanted.cancelled()
    assert [len(items) for items in log.flushes] == [1, 1]


async def test_a_write_that_is_cancelled_in_flight_disturbs_nobody() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush)
    unwanted, wanted = start(commits, intake_of(b"a")), start(commits, intake_of(b"b"))
    await log.entered.wait()
    unwanted.cancel()
    await settled()
    log.gate.set()
    assert (await wanted).appended[0].first == pack(3, 2)


async def test_a_flush_is_bounded_in_writes_and_bytes() -> None:
    log = FakeLog(held=True)
    size = intake_of(b"a").size
    commits = GroupCommit(log.flush, items_max=3, flush_bytes_max=2 * size)
    tasks = [start(commits, intake_of(b"a")) for _ in range(5)]
    await settled()
    log.gate.set()
    await asyncio.gather(*tasks)
    assert [len(items) for items in log.flushes] == [2, 2, 1]
    few = GroupCommit(log.flush, items_max=3)
    await asyncio.gather(*[start(few, intake_of(b"a")) for _ in range(5)])
    assert [len(items) for items in log.flushes[3:]] == [3, 2]


async def test_a_write_larger_than_a_flush_goes_alone() -> None:
    log = FakeLog()
    commits = GroupCommit(log.flush, flush_bytes_max=1)
    await asyncio.gather(*[start(commits, intake_of(b"a")) for _ in range(3)])
    assert [len(items) for items in log.flushes] == [1, 1, 1]


async def test_what_waits_is_bounded() -> None:
    log = FakeLog(held=True)
    size = intake_of(b"a").size
    commits = GroupCommit(log.flush, waiting_bytes_max=2 * size)
    tasks = [start(commits, intake_of(b"a"))]
    await log.entered.wait()
    tasks += [start(commits, intake_of(b"a")) for _ in range(2)]
    await settled()
    with pytest.raises(Unavailable) as caught:
        await commits.commit([intake_of(b"a")], (), None, atomic=False)
    assert caught.value.retry_after_seconds
    log.gate.set()
    await asyncio.gather(*tasks)
    assert (await start(commits, intake_of(b"a"))).appended[0].count == 1


async def test_closing_finishes_what_waits_and_takes_nothing_more() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush)
    tasks = [start(commits, intake_of(b"a"))]
    await log.entered.wait()
    tasks.append(start(commits, intake_of(b"b")))
    await settled()
    closing = asyncio.create_task(commits.close())
    await settled()
    assert not closing.done()
    with pytest.raises(Unavailable):
        await commits.commit([intake_of(b"c")], (), None, atomic=False)
    log.gate.set()
    await closing
    assert all(task.done() for task in tasks)
    assert (await tasks[1]).appended[0].first == pack(3, 2)
    await commits.close()


async def test_an_atomic_write_comes_alone() -> None:
    log = FakeLog(held=True)
    commits = GroupCommit(log.flush)
    tasks = [start(commits, intake_of(b"a"))]
    await log.entered.wait()
    turns = (False, True, True, False, False)
    tasks += [start(commits, intake_of(b"b"), atomic=atomic) for atomic in turns]
    await settled()
    log.gate.set()
    await asyncio.gather(*tasks)
    assert [[item.atomic for item in items] for items in log.flushes] == [
        [False],
        [False],
        [True],
        [True],
        [False, False],
    ]


async def test_duplicates_are_left_out_and_the_rest_tried_again_under_the_same_id() -> None:
    log = FakeLog()
    found = iter([Answer(found=((1, 55),)), Answer(found=((0, 44),))])
    log.answer = lambda _: next(found, None)
    intake = intake_of(b"a", b"b", b"c", transaction_ids=["a", "b", "c"])
    receipt = await GroupCommit(log.flush).commit([intake], (), None, atomic=False)
    assert receipt.appended[0].ids() == [44, 55, pack(3, 1)]
    assert [items[0].appends[0].id for items in log.flushes] == [intake.id] * 3


def settlement(token: int = 1) -> Settlement:
    return Settlement(group=1, token=token, first=1, count=1, done=b"\x01")


async def test_settlements_are_sent_once_where_duplicates_are_tried_again() -> None:
    log = FakeLog()
    log.conflicts = (0,)
    found = iter([Answer(found=((0, 55),))])
    log.answer = lambda _: next(found, None)
    intake = intake_of(b"a", transaction_ids=["a"])
    commits = GroupCommit(log.flush)
    receipt = await commits.commit([intake], [settlement()], None, atomic=False)
    assert list(receipt.conflicts) == [0]
    assert [len(items[0].settlements) for items in log.flushes] == [1, 0]


async def test_an_atomic_write_is_repeated_whole() -> None:
    log = FakeLog()
    found = iter([Answer(found=((0, 55),))])
    log.answer = lambda intake: next(found, None) if intake.digests else None
    intakes = [intake_of(b"a", transaction_ids=["a"]), intake_of(b"b")]
    commits = GroupCommit(log.flush)
    receipt = await commits.commit(intakes, [settlement()], b"i" * 16, atomic=True)
    assert [len(items[0].settlements) for items in log.flushes] == [1, 1]
    assert [len(items[0].appends) for items in log.flushes] == [2, 2]
    assert {items[0].id for items in log.flushes} == {b"i" * 16}
    assert receipt.appended[0].ids() == [55]


async def test_an_atomic_write_that_comes_too_late_raises() -> None:
    log = FakeLog()
    log.conflicts = (0,)
    with pytest.raises(Conflict):
        await GroupCommit(log.flush).commit([], [settlement()], None, atomic=True)


async def test_nothing_to_write_is_nothing_to_flush() -> None:
    log = FakeLog()
    assert await GroupCommit(log.flush).commit([], [], None, atomic=True) == Receipt()
    assert log.flushes == []
