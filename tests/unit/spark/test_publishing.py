"""Each version of an application is published once: repeated, overtaken, or not told what became of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.log.memory import MemoryLog
from forebay.log.seam import Log, VersionConflict
from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append, Record
from forebay.model import Block, Conflict, ManualClock, Message, Unavailable, UnknownQueue, sequence_of
from forebay.spark import publishing
from forebay.spark.publishing import SPACE, BadRows, Progress, Staged, forget, publish_once


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    """Give a log with a queue."""
    opened: Log = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "forebay.db")
    async with opened:
        await opened.create_queue("out")
        yield opened


async def task(log: Log, text: str, version: int, *, place: int = 0, run: str = "r", **given: Any) -> Staged:
    """Stage one message as a task does, under ids of its own."""
    queue, stage = await log.queue("out"), f"spark/app/{version}/{run}"
    block = Block.of([Message(text.encode())])
    await log.stage(stage, [Append.of(queue, block)])
    return msgspec.structs.replace(
        Staged(
            app="app", version=version, query="q", stage=stage, place=place, ids=block.id, keeps=True, rows=1
        ),
        **given,
    )


async def payloads(log: Log) -> list[str]:
    """What is in the queue."""
    found, first = list[str](), 1
    while blocks := await log.read(await log.queue("out"), first):
        found += [message.payload.decode() for block in blocks for message in block.decode()]
        first = sequence_of(blocks[-1].last) + 1
    return found


async def progress(log: Log) -> Progress:
    """What the log remembers of the application."""
    (kept,) = await log.records(SPACE, ["app"])
    return msgspec.json.decode(kept.value, type=Progress)


async def test_tasks_are_published_in_the_order_of_their_partitions(log: Log) -> None:
    tasks = [await task(log, str(place), 0, place=place) for place in (2, 0, 1)]
    assert await publish_once(log, tasks)
    assert await payloads(log) == ["0", "1", "2"]
    assert (await progress(log)).rows == 3


async def test_the_same_commit_twice_is_one(log: Log) -> None:
    tasks = [await task(log, "a", 0)]
    assert await publish_once(log, tasks)
    assert not await publish_once(log, tasks)
    assert await payloads(log) == ["a"]


async def test_a_batch_that_is_repeated_by_a_new_run_is_not_published_again(log: Log) -> None:
    await publish_once(log, [await task(log, "a", 0)])
    again = await task(log, "a", 0, run="new")
    assert not await publish_once(log, [again])
    assert await payloads(log) == ["a"]
    with pytest.raises(Conflict, match="never staged"):  # it was forgotten, not left for retention
        await log.publish(again.stage, [again.ids])


async def test_a_driver_that_was_overtaken_publishes_nothing(log: Log) -> None:
    stale = await task(log, "stale", 0, run="old")
    await publish_once(log, [await task(log, "a", 0, run="new")])
    await publish_once(log, [await task(log, "b", 1, run="new")])
    assert not await publish_once(log, [stale])
    assert await payloads(log) == ["a", "b"]
    assert (await progress(log)).batch == 1


async def test_of_two_attempts_that_staged_the_one_that_spark_took_is_published(log: Log) -> None:
    await task(log, "speculative", 0)
    await publish_once(log, [await task(log, "taken", 0)])
    assert await payloads(log) == ["taken"]


async def test_an_answer_that_was_lost_is_asked_for_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_PAUSES", (0.0,))
    publish, lost = log.publish, list[int]()

    async def losing(*given: Any, **more: Any) -> Any:
        receipt = await publish(*given, **more)
        if not lost:
            lost.append(1)
            raise Unavailable("the answer was lost")
        return receipt

    monkeypatch.setattr(log, "publish", losing)
    await publish_once(log, [await task(log, "a", 0)])
    assert lost
    assert await payloads(log) == ["a"]


async def test_whoever_publishes_between_the_look_and_the_write_wins(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = await task(log, "a", 0, run="mine"), await task(log, "a", 0, run="theirs")
    records, meanwhile = log.records, [theirs]

    async def overtaken(*given: Any) -> Any:
        found = await records(*given)
        if meanwhile:
            assert await publish_once(log, [meanwhile.pop()])
        return found

    monkeypatch.setattr(log, "records", overtaken)
    assert not await publish_once(log, [mine])
    assert await payloads(log) == ["a"]


async def test_a_log_that_stays_away_is_the_error(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_PAUSES", (0.0, 0.0))
    calls = list[int]()

    async def away(*_given: Any) -> Any:
        calls.append(1)
        raise Unavailable("away")

    staged = await task(log, "a", 0)
    monkeypatch.setattr(log, "records", away)
    with pytest.raises(Unavailable):
        await publish_once(log, [staged])
    assert len(calls) == 3


async def test_another_stream_under_the_same_name_is_refused_whatever_its_batch(log: Log) -> None:
    await publish_once(log, [await task(log, "a", 5)])
    for version in (0, 6):
        with pytest.raises(Conflict, match="txnAppId 'app' is in use: the stream q published version 5"):
            await publish_once(log, [await task(log, "b", version, query="another")])
    assert await payloads(log) == ["a"]


async def test_a_batch_without_rows_is_remembered_too(log: Log) -> None:
    empty = await task(log, "a", 0, ids=b"", rows=0)
    assert await publish_once(log, [empty])
    assert (await progress(log)).batch == 0
    assert await payloads(log) == []
    assert not await publish_once(log, [])


async def test_bad_rows_of_all_tasks_are_one_error_and_nothing_is_published(log: Log) -> None:
    good = await task(log, "a", 0, place=0)
    bad = [
        await task(log, "b", 0, place=place, bad=9, named=[f"p{place}"] * 3, refusal=BadRows("in the task"))
        for place in (2, 1)
    ]
    with pytest.raises(BadRows, match=r"18 rows can't be messages \(p1; p1; p1; p2; p2; and 13 more\)"):
        await publish_once(log, [good, *bad])
    assert await payloads(log) == []


async def test_what_a_task_was_refused_is_the_error_of_the_write(log: Log) -> None:
    staged = await task(log, "a", 0, refusal=UnknownQueue("there is no queue 'x'"))
    with pytest.raises(UnknownQueue, match="there is no queue 'x'"):
        await publish_once(log, [staged])


async def test_what_is_forgotten_can_not_be_published(log: Log) -> None:
    staged = await task(log, "a", 0)
    await forget(log, [staged.stage, staged.stage])
    with pytest.raises(Conflict):
        await publish_once(log, [staged])
    assert await log.records(SPACE, ["app"]) == []


async def test_the_record_of_a_job_that_nobody_repeats_expires() -> None:
    clock = ManualClock(1_000_000)
    async with MemoryLog(clock=clock) as log:
        await log.create_queue("out")
        await publish_once(log, [await task(log, "a", 0, keeps=False)], clock)
        (kept,) = await log.records(SPACE, ["app"])
        assert kept.expires_at == clock.now() + 86_400_000_000


async def test_a_conflict_of_versions_publishes_nothing(log: Log) -> None:
    staged = await task(log, "a", 0)
    with pytest.raises(VersionConflict):
        await log.publish(staged.stage, [staged.ids], records=[Record(SPACE, "app", b"", version=3)])
    assert await payloads(log) == []
    assert await publish_once(log, [staged])
