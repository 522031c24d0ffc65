"""Rows that are in no queue become dead letters of one: once, whatever is killed, and whatever they hold."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.log.values import DeadLetter, GroupStats

pytest.importorskip("pyarrow")

from forebay.spark.flows import failed
from forebay.spark.flows.failed import FailedRows
from forebay.spark.flows.halving import DeadRow
from forebay.spark.flows.values import FlowSpec, QueueSink, TimedSource

FLOW = FlowSpec(
    name="poll", type="TIMED_DATA_SOURCE", source=TimedSource(function="m:f"), sink=QueueSink(queue="out")
)


def dead(seq: int, error: str = "ValueError: bad") -> DeadRow:
    return DeadRow(seq, "parse", error, 3)


async def published(log: Log, rows: Sequence[dict[str, Any]], given_up: Sequence[DeadRow]) -> FailedRows:
    found = FailedRows(log, FLOW)
    ids = await found.stage("s", given_up, rows)
    await log.publish("s", ids)
    return found


async def books(log: Log) -> GroupStats:
    (queue,) = (await log.stats()).queues
    (group,) = queue.groups
    return group


async def letters(log: Log) -> list[DeadLetter]:
    return await log.dead_letters((await books(log)).group)


def test_rows_are_given_up_with_their_reason_also_after_a_crash_in_between(tmp_path: Path) -> None:
    async def run() -> None:
        async with SqliteLog(tmp_path / "f.db") as log:
            rows: list[dict[str, Any]] = [
                {"value": "good"},
                {"value": {"a": 1}, "partition": "p", "key": "k", "headers": {"t": "1"}},
            ]
            await published(log, rows, [dead(2)])
            assert (await books(log)).ready == 1
            assert await FailedRows(log, FLOW).bury() == 1, "whoever comes next does it"
            assert await FailedRows(log, FLOW).bury() == 0
            (letter,) = await letters(log)
            message = letter.message()
            assert (letter.reason, letter.attempts) == ("flow poll, action parse: ValueError: bad", 3)
            assert (message.payload, message.partition, message.transaction_id) == (b'{"a":1}', "p", "k")
            assert {"t": "1", "flow": "poll", "action": "parse"}.items() <= (message.headers or {}).items()
            found = await books(log)
            assert (found.ready, found.dead, found.difference) == (0, 1, 0)

    asyncio.run(run())


def test_what_can_not_be_a_message_is_cut_and_not_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with SqliteLog(tmp_path / "f.db") as log:
            rows: list[dict[str, Any]] = [
                {"value": b"x" * (2 << 20), "partition": "a\nb", "key": "k" * 1000},
                {"value": None, "headers": {"large": "h" * (20 << 10), "none": None}},
            ]
            found = await published(log, rows, [dead(1), dead(2), dead(9, "RowError: another number")])
            assert await found.bury() == 3
            first, second, third = [(letter.message(), letter.reason) for letter in await letters(log)]
            assert (len(first[0].payload), first[0].partition, first[0].transaction_id) == (1 << 20, "", None)
            assert (second[0].payload, "large" in (second[0].headers or {})) == (b"", False)
            assert third == (third[0], "flow poll, action parse: RowError: another number")

    asyncio.run(run())


def test_many_bytes_of_rows_are_staged_and_given_up_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed, "STEP_BYTES", 100)

    async def run() -> None:
        async with SqliteLog(tmp_path / "f.db") as log:
            rows = [{"value": f"row {number}"} for number in range(5)]
            found = await published(log, rows, [dead(number) for number in range(1, 6)])
            assert await found.bury() == 5
            assert [letter.message().payload for letter in await letters(log)] == [
                f"row {number}".encode() for number in range(5)
            ]

    asyncio.run(run())


def test_no_queue_is_made_as_long_as_nothing_fails(tmp_path: Path) -> None:
    async def run() -> None:
        async with SqliteLog(tmp_path / "f.db") as log:
            found = FailedRows(log, FLOW)
            assert (await found.stage("s", [], []), await found.bury()) == ([], 0)
            assert await log.queues() == []

    asyncio.run(run())
