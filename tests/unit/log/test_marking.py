"""Marks that share a write: none waits for company, each caller gets its own answer."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.log import marking
from forebay.log.marking import Marking, join
from forebay.log.values import Mark
from forebay.model import Rejected, Unavailable, bitmap


class FakeLog:
    """Notes batches; holds each until it is let go, when it is told to."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[Mark]] = []
        self.unheld: set[int] = set()
        self.faults: dict[int, Exception] = {}
        self.gate = asyncio.Event()
        if not held:
            self.gate.set()

    async def write(self, marks: Sequence[Mark]) -> list[int]:
        self.batches.append(list(marks))
        await self.gate.wait()
        for mark in marks:
            if mark.token in self.faults:
                raise self.faults[mark.token]
        return [i for i, mark in enumerate(marks) if mark.token in self.unheld]


def mark_of(token: int, handed: bytes = b"\x01", returned: bytes = b"") -> Mark:
    return Mark(1, token, 8, handed, returned)


async def run_ready() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lone_mark_is_written_at_once() -> None:
    log = FakeLog()
    marks = Marking(log.write)
    for token in range(3):
        assert await marks.mark([mark_of(token)]) == []
    assert [[m.token for m in batch] for batch in log.batches] == [[0], [1], [2]]


async def test_marks_that_come_meanwhile_share_the_next_write() -> None:
    log = FakeLog(held=True)
    log.unheld = {2, 3}
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(1)]))]
    await run_ready()
    calls += [asyncio.create_task(marks.mark([mark_of(n), mark_of(n + 1)])) for n in (1, 2, 4)]
    await run_ready()
    log.gate.set()
    assert await asyncio.gather(*calls) == [[], [1], [0, 1], []]
    assert [[m.token for m in batch] for batch in log.batches] == [[1], [1, 2, 3, 4, 5]]


async def test_no_marks_are_no_write() -> None:
    log = FakeLog()
    assert await Marking(log.write).mark([]) == []
    assert log.batches == []


async def test_a_batch_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "BATCH_MARKS_MAX", 2)
    log = FakeLog(held=True)
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(n)])) for n in range(5)]
    await run_ready()
    log.gate.set()
    await asyncio.gather(*calls)
    assert [len(batch) for batch in log.batches] == [2, 2, 1]


async def test_a_mark_that_is_refused_fails_alone() -> None:
    log = FakeLog(held=True)
    log.faults = {2: Rejected("no", hint="don't")}
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(n)])) for n in (1, 2, 3)]
    await run_ready()
    log.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, Rejected, list]


async def test_a_log_that_is_away_is_asked_once_more_and_not_for_each_caller() -> None:
    log = FakeLog(held=True)
    log.faults = {2: Unavailable("away", hint="wait")}
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(n)])) for n in (1, 2, 3)]
    await run_ready()
    log.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unavailable}
    assert len(log.batches) == 2
    log.faults.clear()
    assert await marks.mark([mark_of(2)]) == []


async def test_a_caller_that_left_is_not_waited_for() -> None:
    log = FakeLog(held=True)
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(1)]))]
    await run_ready()
    calls += [asyncio.create_task(marks.mark([mark_of(n)])) for n in (2, 3)]
    await run_ready()
    for call in calls[:2]:
        call.cancel()
    await run_ready()
    log.gate.set()
    assert await calls[2] == []
    assert [[m.token for m in batch] for batch in log.batches] == [[1], [3]]


async def test_closing_finishes_what_waits() -> None:
    log = FakeLog(held=True)
    marks = Marking(log.write)
    calls = [asyncio.create_task(marks.mark([mark_of(n)])) for n in (1, 2)]
    await run_ready()
    closing = asyncio.create_task(marks.close())
    await run_ready()
    assert not closing.done()
    log.gate.set()
    await closing
    await marks.close()
    assert [len(batch) for batch in log.batches] == [2]
    assert await asyncio.gather(*calls) == [[], []]


bytes_of_bits = st.integers(0, 255).map(lambda n: bytes([n]))


@given(bytes_of_bits, st.lists(st.tuples(bytes_of_bits, bytes_of_bits), min_size=2, max_size=4))
def test_joined_marks_do_what_they_did_one_by_one(before: bytes, said: list[tuple[bytes, bytes]]) -> None:
    def after(bits: bytes, mark: Mark) -> bytes:
        return bitmap.minus(bitmap.union(bits, mark.handed), mark.returned)

    one_by_one, joined = before, Mark(1, 1, 8)
    for handed, returned in said:
        mark = Mark(1, 1, 8, handed, returned)
        one_by_one, joined = after(one_by_one, mark), join(joined, mark)
    assert after(before, joined) == one_by_one
