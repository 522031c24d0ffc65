"""The folder of a spool is looked at, and left as it was."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.app.checkup.spool import check_spool

HOLD = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
input()
"""


def found(folder: Path) -> dict[str, tuple[str, str]]:
    """The findings by subject."""
    return {finding.subject: (finding.level, finding.text) for finding in check_spool(folder)}


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "spool"
    assert found(folder)["spool"] == ("ok", f"{folder} is made by the server")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/spool"])
def test_a_folder_that_can_not_be_one_fails(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert found(tmp_path / name)["spool"][0] == "failure"


def test_files_that_wait_for_a_server_are_mentioned(tmp_path: Path) -> None:
    (tmp_path / "failed").mkdir()
    names = [
        "failover_019a0c11-7fe8.buf",
        "qos0_019a0c11-7fe9.buf.tmp",
        "notes.txt",
        "failed/failover_019a0c11-7abc.buf",
    ]
    for name in [*names, "failed/failover_019a0c11-7abd.bad", "failed/failover_019a0c11-7abd.reasons"]:
        (tmp_path / name).write_bytes(b"{}")
    before = sorted(tmp_path.rglob("*"))
    said = found(tmp_path)
    assert said["spool files"][0] == "warning"
    assert said["spool files"][1].startswith("2 files")
    assert said["spool failed"][0] == "warning"
    assert said["spool failed"][1].startswith("2 files")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_server_may_hold_the_folder_and_its_files_are_no_reason_to_worry(tmp_path: Path) -> None:
    (tmp_path / "failover_019a0c11-7fe8.buf").write_bytes(b"{}")
    with holder(tmp_path, "forebay") as pid:
        said = found(tmp_path)
    assert said["spool lock"][0] == "ok"
    assert f"process {pid} (" in said["spool lock"][1]
    assert said["spool files"][0] == "ok"
    assert "spool lock" not in found(tmp_path)


@contextmanager
def holder(folder: Path, program: str) -> Iterator[int]:
    """A process that has locked the folder while it lasts: its id."""
    lock, path = folder / "lock", folder / program
    lock.write_bytes(b"")
    path.write_text(HOLD)
    command = ["python", program, "lock"]
    with subprocess.Popen(
        command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def test_a_stranger_that_holds_the_folder_fails_and_is_named(tmp_path: Path) -> None:
    with holder(tmp_path, "backup.py") as pid:
        level, text = found(tmp_path)["spool lock"]
    assert level == "failure"
    assert f"process {pid} (python backup.py lock)" in text
