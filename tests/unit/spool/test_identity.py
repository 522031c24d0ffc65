"""A folder keeps its identity, by which the process that had it before is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.spool.spool import Spool


async def test_a_folder_keeps_its_identity_and_no_other_has_it(tmp_path: Path) -> None:
    async with await Spool.open(RealDisk(tmp_path / "one")) as spool:
        first = spool.identity
    async with await Spool.open(RealDisk(tmp_path / "one")) as spool:
        assert spool.identity == first
    async with await Spool.open(RealDisk(tmp_path / "two")) as spool:
        assert spool.identity != first


@pytest.mark.parametrize("content", [b"", b"0123", b"0123456789abcdeX", b"0" * 17])
def test_what_a_crash_left_of_it_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    lock = RealDisk(tmp_path).lock()
    lock.close()
    assert (tmp_path / "lock").read_bytes().decode() == lock.identity
    assert len(lock.identity) == 16
