"""This machine: Python, packages, the folder of the data, and the disk under it."""

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from forebay import __version__
from forebay.app.checkup.finding import Finding, failure, ok, warning
from forebay.model import format_bytes

__all__ = ["check_folder", "check_python", "gibibytes", "judge_space", "judge_sync"]

PYTHON_MIN: Final = (3, 11)
NEEDED: Final = ("aiohttp", "apsw", "cramjam", "cryptography", "msgspec", "rich", "uvicorn")
EXTRAS: Final = {"asyncpg": "postgres", "asynctnt": "tarantool", "redis": "valkey"}
SPACE_BYTES_WARNING: Final = 2 << 30
SPACE_BYTES_FAILURE: Final = 256 << 20
SYNC_SECONDS_WARNING: Final = 0.05
SYNC_SECONDS_FAILURE: Final = 1.0
SYNCS: Final = 7


def check_python() -> Iterator[Finding]:
    """Python and the packages that Forebay needs, or may need."""
    found = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        yield failure("python", f"{found} is too old", "install Python 3.11 or newer")
    else:
        yield ok("python", f"{found}, forebay {__version__}")
    versions, missing = list[str](), list[str]()
    for name in (*NEEDED, *EXTRAS):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if lost := [name for name in missing if name in NEEDED]:
        yield failure("packages", f"missing: {', '.join(lost)}", "pip install forebay")
    yield ok("packages", ", ".join(versions))


def check_folder(folder: Path) -> Iterator[Finding]:
    """The folder that holds data: that it can be written, how much fits, how long a sync takes."""
    subject = "data folder"
    if not folder.is_dir():
        yield failure(subject, f"{folder} is not there", f"mkdir -p {folder}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield failure(subject, f"{folder} can't be written", f"chown {os.getuid()} {folder}")
        return
    yield ok(subject, str(folder))
    usage = shutil.disk_usage(folder)
    yield judge_space(folder, usage.free, usage.total)
    try:
        yield judge_sync(folder, _sync_seconds(folder))
    except OSError as error:
        yield failure("fsync", f"{folder}: {error.strerror}", "dmesg | tail")


def judge_space(folder: Path, free: int, total: int) -> Finding:
    """Whether there is room on the disk."""
    text = f"{gibibytes(free)} of {gibibytes(total)} free"
    helping = f"df -h {folder}; lower keep_seconds of large queues, or move the folder"
    if free < SPACE_BYTES_FAILURE:
        return failure("disk", text, helping)
    return warning("disk", text, helping) if free < SPACE_BYTES_WARNING else ok("disk", text)


def judge_sync(folder: Path, seconds: float) -> Finding:
    """Whether a write is durable soon enough."""
    text = f"{seconds * 1000:.1f} ms"
    helping = f"keep {folder} on a local disk; see what else writes to it with `iostat -x 1`"
    if seconds >= SYNC_SECONDS_FAILURE:
        return failure("fsync", text, helping)
    return warning("fsync", text, helping) if seconds >= SYNC_SECONDS_WARNING else ok("fsync", text)


def _sync_seconds(folder: Path) -> float:
    """The median time of making a small write durable; leaves nothing behind."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[SYNCS // 2]


def gibibytes(size: int) -> str:
    """Write a size so that it is easily read."""
    return f"{size / (1 << 30):,.1f}Gi" if size >= 1 << 30 else format_bytes(size >> 20 << 20)
