"""Where flows on Spark are, as their own records say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import msgspec

from forebay.log.memory import MemoryLog
from forebay.log.values import Record
from forebay.model import ManualClock
from forebay.observe.flow_places import FLOWS_MAX, FlowPlace, FlowPlaces, flow_places
from forebay.spark.flows.pipeline import Status
from forebay.spark.flows.place import SPACE, Place
from forebay.spark.flows.reports import Reports
from forebay.spark.flows.values import QueueSource

START: Final = 1_800_000_000_000_000
NO_FLOWS_FOUND: Final = FlowPlaces([])


async def test_flows_are_told_by_their_records_and_what_cannot_be_read_is_left_out() -> None:
    async with MemoryLog() as log:
        assert await flow_places(log) == NO_FLOWS_FOUND
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "daily")
        place = Place(checkpoint="x", start=1, end=11, batches=2, rows_in=10, rows_out=8, dead=2, at=5)
        key = f"by/day/{queue.number}/{group.number}"
        gone, bad = f"gone/{queue.number + 9}/1", f"bad/{queue.number}/{group.number}"
        records = [Record(SPACE, each, msgspec.json.encode(place)) for each in (key, gone, "odd", "x/y/z")]
        await log.commit(records=[*records, Record(SPACE, bad, b"\xff")])
        found = await flow_places(log)
        assert found.flows == [
            FlowPlace(
                flow="by/day", queue="orders", group="daily", batches=2, rows_in=10, rows_out=8, dead=2,
                published_at=5,
            )
        ]  # fmt: skip
        assert not found.is_cut


def status(name: str, state: str, error: str | None = None) -> Status:
    zeros: Any = dict.fromkeys(("lag", "rows_in", "rows_out", "dead", "restarts", "last_rows"), 0)
    return Status(
        name=name, type="TRANSFORM", state=state, error=error, rows_per_second=0.0, last_seconds=0.0, **zeros
    )


class Around:
    """The log of a pipeline, as it is asked by a program without a loop."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.written: list[Any] = []

    def face(self) -> Around:
        return self

    def __call__(self, work: Any) -> None:
        self.written.append(work)


async def test_a_pipeline_says_how_its_flows_are_until_it_ends() -> None:
    clock = ManualClock(START)
    async with MemoryLog(clock=clock) as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "daily")
        place = Place(checkpoint="x", start=1, end=11, batches=2, rows_in=10, rows_out=8, dead=2, at=5)
        key = f"sums/{queue.number}/{group.number}"
        await log.commit(records=[Record(SPACE, key, msgspec.json.encode(place))])
        sources = [
            ("sums", QueueSource(queue="orders", group="daily")),
            ("new", QueueSource(queue="mail", group="new")),
        ]
        spec: Any = SimpleNamespace(flows=[SimpleNamespace(name=n, source=s) for n, s in sources])
        around: Any = Around(log)
        now = 0.0
        reports = Reports(around, spec, clock=lambda: now, wall=lambda: clock.now() / 1e6)
        error = f"OSError: postgresql://me:secret@db/x {'x' * 600}"
        for _ in range(2):
            reports([status("sums", "failed", error), status("new", "running"), status("timed", "running")])
        (written,) = around.written
        await written
        sums, new = sorted((await flow_places(log)).flows, key=lambda each: each.flow, reverse=True)
        assert (sums.rows_in, sums.state) == (10, "failed")
        assert sums.error is not None
        assert "secret" not in sums.error
        assert len(sums.error) == 500
        assert (new.queue, new.state, new.error, new.batches) == ("mail", "running", None, 0)
        now += 11
        reports([status("sums", "failed", error), status("new", "running")])
        await around.written[1]
        reports([status("sums", "running"), status("new", "running")])
        await around.written[2]
        assert {each.state for each in (await flow_places(log)).flows} == {"running"}
        clock.advance(seconds=31)
        (sums,) = (await flow_places(log)).flows
        assert (sums.state, sums.error) == (None, None)


async def test_more_flows_than_are_listed_are_told() -> None:
    async with MemoryLog() as log:
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "daily")
        keys = [f"flow-{n:03}/{queue.number}/{group.number}" for n in range(FLOWS_MAX + 1)]
        await log.commit(records=[Record(SPACE, key, b"{}") for key in keys])
        found = await flow_places(log)
        assert (len(found.flows), found.is_cut) == (FLOWS_MAX, True)
