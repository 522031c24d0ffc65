"""Stretches of flows: what is remembered counts as if everything had been read anew, and is bounded."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from forebay.log import flow_stretches
from forebay.log.flow_stretches import BlockFlows, FlowGap, FlowMemory, FlowPlan, FlowRead, FlowStretches
from forebay.log.flows import FlowTotals, encode_flows
from forebay.model import Flow

END = 1 << 40
FLOWS = [Flow(name) for name in "abcde"]


class Backlog:
    """Blocks of one queue as a log has them, and a cursor."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.blocks: list[BlockFlows] = []
        self.position = 1
        self.next = 1
        self.at = 1
        self.known = FlowStretches()
        self.rows_read = 0

    def append(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.at += self.rng.randrange(3)
            counts = {flow: self.rng.randint(1, 3) for flow in self.rng.sample(FLOWS, self.rng.randint(0, 2))}
            messages = sum(counts.values()) or self.rng.randint(1, 4)
            self.next += messages
            self.blocks.append(BlockFlows(self.next - 1, messages, self.at, encode_flows(counts)))

    def claim(self) -> None:
        self.position = min(self.next, self.position + self.rng.randint(0, 40))

    def seek(self) -> None:
        self.position = self.rng.randint(self.blocks[0].first if self.blocks else self.next, self.next)

    def trim(self) -> None:
        floor = self.rng.randint(0, len(self.blocks) // 3)
        self.blocks = self.blocks[floor:]
        self.position = max(self.position, self.blocks[0].first if self.blocks else self.next)

    def lose(self) -> None:
        """Forget the newest blocks, as a database does that falls back; others come in their place."""
        lost = self.rng.randint(0, min(30, len(self.blocks)))
        if lost:
            self.next = self.blocks[-lost].first
            del self.blocks[-lost:]
            self.position = min(self.position, self.next)
        self.at += 100

    def page(self, gap: FlowGap) -> list[BlockFlows]:
        rows = [
            block
            for block in self.blocks
            if gap.first <= block.last <= gap.last and block.appended_at >= gap.since
        ]
        self.rows_read += min(len(rows), flow_stretches.PAGE_BLOCKS)
        return rows[: flow_stretches.PAGE_BLOCKS]

    def plan(self) -> FlowPlan:
        return self.known.plan(self.position, 0, END)

    def count(self) -> FlowRead:
        """Count with what is known, and know more after it."""
        for _ in range(10 * len(self.blocks) + 10):
            plan = self.plan()
            read = plan.fold([self.page(gap) for gap in plan.gaps])
            self.known = read.known
            if read.tally is not None:
                return read
        raise AssertionError("a count never ends")

    def scratch(self) -> FlowRead:
        """Count by reading everything."""
        plan = FlowStretches().plan(self.position, 0, END)
        page, was = (
            [block for block in self.blocks if block.last >= self.position],
            flow_stretches.PAGE_BLOCKS,
        )
        flow_stretches.PAGE_BLOCKS = len(page) + 1  # type: ignore[misc]
        try:
            return plan.fold([page])
        finally:
            flow_stretches.PAGE_BLOCKS = was  # type: ignore[misc]


def totals(read: FlowRead) -> tuple[FlowTotals, object]:
    assert read.tally is not None
    return read.tally.totals(), read.cut


@pytest.fixture(params=[(2, 2), (3, 1), (8, 3)])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages and stretches short."""
    page, stretch = request.param
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", page)
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", stretch)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MIN", 8)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MAX", 16)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("history", range(30))
def test_what_is_remembered_counts_as_if_all_were_read(history: int, rng: random.Random) -> None:
    backlog = Backlog(random.Random(f"{rng.random()} {history}"))
    verbs = [
        backlog.append,
        lambda: backlog.append(30),
        backlog.claim,
        backlog.seek,
        backlog.trim,
        backlog.lose,
    ]
    for _ in range(150):
        backlog.rng.choices(verbs, [6, 2, 6, 1, 1, 1])[0]()
        if backlog.rng.random() < 0.7:
            assert totals(backlog.count()) == totals(backlog.scratch())
            firsts = [(stretch.first, stretch.last) for stretch in backlog.known.stretches]
            assert all(last < first for (_, last), (first, _) in pairwise(firsts))
            assert len(firsts) <= 2 * flow_stretches.STRETCHES_MAX


def test_a_backlog_is_read_once(rng: random.Random) -> None:
    backlog = Backlog(rng)
    backlog.append(100_000)
    backlog.count()
    assert backlog.rows_read < 101_000
    for _ in range(5):
        backlog.rows_read = 0
        backlog.append(10)
        assert totals(backlog.count()) == totals(backlog.scratch())
        assert backlog.rows_read <= flow_stretches.STRETCH_BLOCKS


def test_a_cursor_that_moves_reads_each_block_few_times(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", 40)
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", 20)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MAX", 64)
    backlog = Backlog(rng)
    backlog.append(20_000)
    backlog.count()
    backlog.rows_read, rounds = 0, 0
    while backlog.position < backlog.next:
        backlog.position = min(backlog.next, backlog.position + 100)
        backlog.count()
        rounds += 1
    assert backlog.rows_read < 4 * 20_000 + 40 * rounds


def test_stretches_stay_few_whatever_the_backlog(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", 4)
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", 2)
    monkeypatch.setattr(flow_stretches, "STRETCHES_MAX", 32)
    backlog = Backlog(rng)
    for _ in range(200):
        backlog.append(20)
        backlog.count()
        assert len(backlog.known.stretches) <= 33
    assert totals(backlog.count()) == totals(backlog.scratch())


def test_a_process_remembers_what_was_asked_for_last(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, memory = Backlog(rng), FlowMemory()
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", 4)
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", 2)
    backlog.append(100)
    backlog.count()
    monkeypatch.setattr(flow_stretches, "MEMORY_TOTALS_MAX", 2 * backlog.known.size)
    for group in (1, 2, 1, 3):
        memory.keep(group, backlog.known)
    assert [bool(memory.get(group).stretches) for group in (1, 2, 3)] == [True, False, True]
    memory.keep(1, FlowStretches())
    assert not memory.get(1).stretches


def test_plans_are_for_cursors_up_to_the_first_whole_stretch(rng: random.Random) -> None:
    backlog = Backlog(rng)
    assert backlog.plan().whole_from == END
    backlog.append(flow_stretches.STRETCH_BLOCKS + 10)
    backlog.count()
    (stretch,) = backlog.known.stretches
    assert backlog.plan().whole_from == stretch.first == 1
