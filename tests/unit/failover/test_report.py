"""What a spool says of itself: files, log lines, how far a replay is, and that it has no room."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.failover.report import SAID_SECONDS, Pace, Report
from forebay.failover.settings import FailoverSettings
from forebay.model import Full
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from tests.unit.failover.outage import Mode, OutageLog
from tests.unit.failover.test_failover import QUICK, Site, site

AS_SHIPPED = FailoverSettings(attempt_seconds=5.0, flush_seconds=0.01, reserve_bytes=0)


async def log_of_orders() -> OutageLog:
    log = OutageLog()
    await log.log.create_queue("orders")
    return log


async def fill(here: Site) -> None:
    for value in range(100):
        await here.push(value)


def lines(caplog: pytest.LogCaptureFixture, begin: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(begin)]


@pytest.mark.parametrize("mode", ["away", "read-only", "deaf"])
async def test_a_file_takes_what_comes_until_it_is_full_or_wanted(tmp_path: Path, mode: Mode) -> None:
    log = await log_of_orders()
    async with site(tmp_path, log, AS_SHIPPED) as here:
        await here.push(*range(100, 140))
        tasks = await here.store.get_task("orders", 40)
        log.mode = mode
        for value in range(40):
            await here.push(value)
            assert await here.store.done_task(tasks[value : value + 1]) == "spool"
            tries = log.refusals + log.commits
            await here.until(lambda before=tries: log.refusals + log.commits > before)  # type: ignore[misc]
        # One of each kind that was to be replayed, and one that takes what comes.
        assert here.failover.status().files <= 4
        log.mode = "there"
        await here.drained()
        await here.until(lambda: here.failover.status().files == 0)
        (books,) = (await here.store.ledger()).queues
        assert (books.groups[0].accepted, books.groups[0].done) == (80, 40)


async def test_the_log_of_the_server_tells_of_an_outage_in_few_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log = await log_of_orders()
    async with await Failover.open(RealDisk(tmp_path), QUICK, name="PostgreSQL"):
        pass
    async with site(tmp_path, log, AS_SHIPPED) as here:
        log.mode = "away"
        for value in range(20):
            await here.push(value)
        await here.until(lambda: bool(lines(caplog, "Buffered")))
        log.mode = "there"
        await here.drained()
        await here.until(lambda: here.failover.status().files == 0)
    (buffered,) = lines(caplog, "Buffered")
    assert buffered.split()[1].isdigit()
    assert " events to failover_" in buffered
    (lost,) = lines(caplog, "Database connection failed, switching to file buffer")
    assert lost.endswith("connection refused")
    assert len(lines(caplog, "Database recovery detected!")) == 1
    assert lines(caplog, "Failover replay complete, deleted file failover_")[-1].endswith(" events")


async def test_a_replay_that_breaks_off_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await log_of_orders()
    settings = msgspec.structs.replace(AS_SHIPPED, batch_events_max=1)
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        for value in range(5):
            await here.push(value)
        log.free, log.held, log.commits = 1, asyncio.Event(), 0
        log.mode = "there"
        await here.until(lambda: log.commits > 1)
        log.mode = "away"
        log.held.set()
        await here.until(lambda: not here.failover.health.is_healthy)
        refusals = log.refusals
        await here.until(lambda: log.refusals > refusals + 2)
        assert len(lines(caplog, "Failed to flush: 4 events stay in the spool")) == 1
        log.mode, log.held = "there", None
        await here.drained()


async def test_what_was_there_before_is_counted_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await log_of_orders()
    async with site(tmp_path, log, AS_SHIPPED) as here:
        log.mode = "away"
        await here.push(1, 2)
    may_count, count = threading.Event(), Reader.count

    def slowly(reader: Reader, name: FileName, *, failed: bool = False) -> int:
        may_count.wait(60)
        return count(reader, name, failed=failed)

    monkeypatch.setattr(Reader, "count", slowly)
    async with await Failover.open(RealDisk(tmp_path), AS_SHIPPED) as failover:
        assert failover.status().pending == 0
        counted = asyncio.ensure_future(failover.counted())
        may_count.set()
        assert (await counted).pending == 2


async def test_a_spool_that_is_full_says_so_until_there_is_room(tmp_path: Path) -> None:
    log = await log_of_orders()
    settings = msgspec.structs.replace(AS_SHIPPED, total_bytes_max=2_000)
    async with site(tmp_path, log, settings) as here:
        log.mode = "away"
        with pytest.raises(Full):
            await fill(here)
        refused = here.failover.status().refused
        assert refused is not None
        assert "no room left" in refused
        log.mode = "there"
        await here.drained()
        await here.until(lambda: here.failover.status().refused is None)


def test_a_pace_is_that_of_the_last_seconds() -> None:
    pace = Pace()
    assert (pace.rate(0.0), pace.seconds_left(100, 0.0)) == (0.0, None)
    for step in range(20):
        pace.add(100, step * 0.5)
    assert pace.rate(10.0) == pytest.approx(200)
    assert pace.seconds_left(1_000, 10.0) == pytest.approx(5)
    assert pace.rate(30.0) == 0.0


def test_progress_is_said_with_numbers_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    report = Report()
    report.begin(0.0)
    for step in range(1, 11):
        now = step * SAID_SECONDS / 5
        report.add_replayed(500, now)
        report.say_progress(10_000 - 500 * step, now)
    assert lines(caplog, "Failover: Progress") == [
        "Failover: Progress 2500/10000 events (25.0%), 625 events/s, 12 seconds left",
        "Failover: Progress 5000/10000 events (50.0%), 556 events/s, 9 seconds left",
    ]
