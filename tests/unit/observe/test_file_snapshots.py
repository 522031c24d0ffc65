"""Snapshots in a folder whose disk is full: nothing is published, and the last good one stays."""

from __future__ import annotations

import errno
import os
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
