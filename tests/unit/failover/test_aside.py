"""What can't be replayed is set aside: counted, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.failover.outage import OutageLog, numbered, payloads_of
from tests.unit.failover.test_failover import site


def scratch(folder: Path, pattern: str, line: int) -> Path:
    """Damage a line of the newest file with such a name; the file."""
    *_, file = sorted(folder.glob(pattern))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line] = b"scratched\n"
    file.write_bytes(b"".join(lines))
    return file


async def test_what_cant_be_read_is_counted_and_said_once_its_file_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log) as here:
        log.mode = "away"
        await here.push(0, 1, 2)
        await here.failover._spool.flush()
        file = scratch(tmp_path, "failover_*.buf", 1)
        assert here.failover.status().failed == 0
        log.mode = "there"
        await here.drained()
        assert here.failover.status().failed == 1
    assert f"1 faults of {file.name} can't be replayed and were set aside" in caplog.text
    assert await payloads_of(log, "orders") == numbered([0, 2])


async def test_outcomes_that_are_set_aside_are_counted(tmp_path: Path) -> None:
    log = OutageLog()
    await log.log.create_queue("orders")
    async with site(tmp_path, log) as here:
        await here.push(1, 2)
        one, two = await here.store.get_task("orders", 2)
        log.mode = "away"
        await here.store.done_task([one])
        await here.store.done_task([two])
        await here.failover._spool.flush()
        scratch(tmp_path, "settle_*.buf", -1)
        log.mode = "there"
        await here.until(lambda: here.failover.status().failed == 1)
