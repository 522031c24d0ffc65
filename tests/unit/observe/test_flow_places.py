"""Where flows on Spark are, as their own records say."""

from __future__ import annotations

import msgspec

from forebay.log.memory import MemoryLog
from forebay.log.values import Record
from forebay.observe.flow_places import FlowPlace, flow_places
from forebay.spark.flows.place import SPACE, Place


async def test_flows_are_told_by_their_records_and_what_cannot_be_read_is_left_out() -> None:
    async with MemoryLog() as log:
        assert await flow_places(log) == ()
        queue = await log.create_queue("orders")
        group = await log.create_group(queue, "daily")
        place = Place(checkpoint="x", start=1, end=11, batches=2, rows_in=10, rows_out=8, dead=2, at=5)
        key = f"by/day/{queue.number}/{group.number}"
        gone, bad = f"gone/{queue.number + 9}/1", f"bad/{queue.number}/{group.number}"
        records = [Record(SPACE, each, msgspec.json.encode(place)) for each in (key, gone, "odd", "x/y/z")]
        await log.commit(records=[*records, Record(SPACE, bad, b"\xff")])
        assert await flow_places(log) == [
            FlowPlace(
                flow="by/day", queue="orders", group="daily", batches=2, rows_in=10, rows_out=8, dead=2,
                published_at=5,
            )
        ]  # fmt: skip
