"""Snapshots in a folder: a disk that is full, files that are damaged, writers that die."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.model import Unavailable
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.snapshot_store import meta_of


@pytest.mark.parametrize("syncs", [0, 1, 2])
async def test_on_a_full_disk_the_last_good_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: int
) -> None:
    store = FileSnapshots(tmp_path)
    term = await store.begin_term("one", 60)
    assert term is not None
    meta = meta_of(term, b"a", source="counters", generated_at=1.0, seconds=0.1, rows=1)
    good = await store.publish(term, b"a", meta)
    left = iter(range(syncs))

    def full(_: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            await store.publish(term, b"a", meta)
    found = await store.current()
    assert found is not None
    assert (found.version, found.data) == (good, b"a")
    assert await store.publish(term, b"a", meta) > good


@pytest.mark.parametrize("name", ["term", "current"])
async def test_a_damaged_file_is_written_anew_by_the_next_refresh(tmp_path: Path, name: str) -> None:
    store = FileSnapshots(tmp_path)
    term = await store.begin_term("one", 60)
    assert term is not None
    meta = meta_of(term, b"a", source="counters", generated_at=1.0, seconds=0.1, rows=1)
    good = await store.publish(term, b"a", meta)
    (tmp_path / name).write_bytes(b"\0 damaged")
    again = await store.begin_term("one", 60)
    assert again is not None
    assert again.number >= term.number
    meta = meta_of(again, b"b", source="counters", generated_at=2.0, seconds=0.1, rows=1)
    assert await store.publish(again, b"b", meta) > good
    found = await store.current()
    assert found is not None
    assert found.data == b"b"


async def test_the_term_of_a_process_that_was_killed_is_over_at_once(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from forebay.observe.file_snapshots import FileSnapshots
store = FileSnapshots(Path(sys.argv[1]))
print(asyncio.run(store.begin_term("first", 3_600)).number, flush=True)
sys.stdin.read()
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = int(await process.stdout.readline())
    store = FileSnapshots(tmp_path)
    assert await store.begin_term("second", 60) is None
    process.send_signal(signal.SIGSTOP)  # it may go on
    assert await store.begin_term("second", 60) is None
    process.kill()
    await process.communicate()
    term = await store.begin_term("second", 60)
    assert term is not None
    assert term.number == first + 1
    assert await FileSnapshots(tmp_path).begin_term("third", 60) is None
    await store.end_term(term)
    assert await FileSnapshots(tmp_path).begin_term("third", 60) is not None
