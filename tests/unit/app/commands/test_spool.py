"""What `forebay spool` says of files."""

import errno
import os
from pathlib import Path

import pytest

from forebay.app.commands.spool import SHOWN_MAX, check_file, said_lines
from forebay.disk import File, RealDisk
from forebay.spool.checking import list_files

NAME = "failover_019a0c11-7fe8.buf"


class BadDisk(RealDisk):
    """Can't open files."""

    number = errno.EIO

    def open(self, name: str, *, create: bool = False) -> File:  # noqa: ARG002 - as a disk has it
        raise OSError(self.number, os.strerror(self.number))


def test_a_file_that_can_not_be_read_is_said_and_one_that_is_gone_is_left_out(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"{}\n")
    (listed,) = list_files(RealDisk(tmp_path))
    disk = BadDisk(tmp_path)
    found = check_file(disk, listed)
    assert found is not None
    assert not found.is_sound
    assert said_lines(found) == [f"{NAME}: the spool can't be read: Input/output error"]
    assert found.fields() == {
        "file": NAME, "state": "finished", "sound": False,
        "error": "the spool can't be read: Input/output error",
    }  # fmt: skip
    disk.number = errno.ENOENT
    assert check_file(disk, listed) is None


@pytest.mark.parametrize("count", [0, 1, SHOWN_MAX, SHOWN_MAX + 7])
def test_not_more_faults_are_shown_than_can_be_read(count: int, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"}\n" * count)
    (listed,) = list_files(RealDisk(tmp_path))
    found = check_file(RealDisk(tmp_path), listed)
    assert found is not None
    lines = said_lines(found)
    assert len(lines) == min(count, SHOWN_MAX + 1)
    assert lines[-1:] != ([f"{NAME}: and 7 more"] if count < SHOWN_MAX + 7 else [])
