"""The folder of a spool: whether it will take pushes in an outage, who has it, and what waits in it."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from forebay.app.checkup.finding import Finding, failure, ok, warning
from forebay.app.checkup.machine import gibibytes
from forebay.disk import RealDisk
from forebay.model import Unavailable, redact
from forebay.spool.checking import list_files

__all__ = ["check_spool", "judge_holder", "judge_space"]

SUBJECT: Final = "spool"
SPACE_BYTES_WARNING: Final = 1 << 30
SPACE_PARTS_WARNING: Final = 10
"""Warn when less than one part in so many is free."""
LOCK: Final = "lock"
COMMAND_CHARACTERS_MAX: Final = 100


def check_spool(folder: Path) -> Iterator[Finding]:
    """All about it; nothing is made, and nothing stays locked."""
    if not folder.exists():
        yield from _check_unmade(folder)
        return
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield failure(SUBJECT, f"{folder} can't be written", f"ls -ld {folder}; id -un")
        return
    yield ok(SUBJECT, str(folder))
    usage = shutil.disk_usage(folder)
    yield judge_space(folder, usage.free, usage.total)
    try:
        held = RealDisk(folder).is_locked()
        pid = _holder(folder / LOCK) if held else None
        if held:
            yield judge_holder(folder, pid, _command(pid))
        yield from _check_files(folder, in_use=held)
    except (OSError, Unavailable) as error:
        yield failure(SUBJECT, f"{folder} can't be read: {error}", f"ls -l {folder}")


def _check_unmade(folder: Path) -> Iterator[Finding]:
    """A folder that isn't there is made by the server, if it may."""
    above = next(path for path in folder.absolute().parents if path.exists())
    if os.access(above, os.W_OK | os.X_OK):
        yield ok(SUBJECT, f"{folder} is made by the server")
        usage = shutil.disk_usage(above)
        yield judge_space(above, usage.free, usage.total)
    else:
        yield failure(SUBJECT, f"{folder} is not there, and can't be made in {above}", f"mkdir -p {folder}")


def judge_space(folder: Path, free: int, total: int) -> Finding:
    """Whether an outage of some length fits on the disk."""
    text = f"{gibibytes(free)} of {gibibytes(total)} free for what is pushed in an outage"
    if free < SPACE_BYTES_WARNING or free * SPACE_PARTS_WARNING < total:
        return warning("spool disk", text, f"df -h {folder}; make room, or set spool.folder to a larger disk")
    return ok("spool disk", text)


def judge_holder(folder: Path, pid: int | None, command: Sequence[str]) -> Finding:
    """Whether it is one of ours that has the folder, as far as one can see by the words of its command."""
    words = " ".join(map(redact, command))[:COMMAND_CHARACTERS_MAX]
    who = "another process" if pid is None else f"process {pid} ({words or 'of another user'})"
    if command and not any(Path(word).name == "forebay" or word.startswith("forebay.") for word in command):
        text = f"{folder} is locked by {who}, so no server can use it"
        return failure("spool lock", text, "end it, or set spool.folder to a folder of the server's own")
    return ok("spool lock", f"held by {who}: one server at a time")


def _check_files(folder: Path, *, in_use: bool) -> Iterator[Finding]:
    disk = RealDisk(folder)
    listed = [found for found in list_files(disk) if found.state != "failed"]
    text = f"{len(listed):,} files, {gibibytes(sum(found.bytes for found in listed))}, wait to be replayed"
    if listed and not in_use:
        yield warning("spool files", text, "forebay serve, with the same settings, replays them")
    else:
        yield ok("spool files", text if listed else "none waits to be replayed")
    aside = [name for name in disk.list("failed") if name.endswith((".buf", ".bad"))]
    if aside:
        said = f"{len(aside):,} files in failed/: what the log refused, or what can't be read"
        yield warning("spool failed", said, f"cat {folder}/failed/*.reasons")


def _holder(lock: Path) -> int | None:
    """The process that has a lock, where the system tells."""
    inode = lock.stat().st_ino
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (line.split() for line in lines if "->" not in line):
        if kind == "FLOCK" and place.rpartition(":")[2] == str(inode) and int(pid) > 0:
            return int(pid)
    return None


def _command(pid: int | None) -> list[str]:
    """The words of a process's command, or nothing where nobody may know."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode(errors="replace") for word in words if word]
