"""A worker for `forebay worker`, which writes down what it does, and may get stuck on purpose.

`VICTIM_NOTES` is the file of its notes; `VICTIM_STUCK_AT` is how many tasks it handles before it waits for
ever, and `VICTIM_STUBBORN` is whether it does so when it is cancelled, too.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec

from forebay.store.values import Task
from forebay.work import Worker, WorkerSettings, handler

__all__ = ["QUEUE", "VISIBILITY_SECONDS", "Note", "notes_of", "worker"]

VISIBILITY_SECONDS = 10.0
"""Enough for one that lives to keep its leases, however busy the machine is."""
QUEUE = "tasks"


class Note(msgspec.Struct):
    """A task began or ended; the clock is the same for all processes of a machine."""

    what: Literal["begin", "end", "stuck"]
    task: int
    attempts: int
    pid: int
    at: float


def notes_of(path: Path) -> list[Note]:
    """All notes; a line that is being written isn't one yet."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [msgspec.json.decode(line, type=Note) for line in whole.splitlines()]


_stuck_at = int(os.environ.get("VICTIM_STUCK_AT", "0"))
_is_stubborn = bool(os.environ.get("VICTIM_STUBBORN"))
_handled = 0


def _note(what: Literal["begin", "end", "stuck"], task: Task) -> None:
    note = Note(what, task.id, task.attempts, os.getpid(), monotonic())
    out = os.open(os.environ["VICTIM_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, msgspec.json.encode(note) + b"\n")
    os.close(out)


@handler(QUEUE, batch_size=10, max_processors=2, visibility_seconds=VISIBILITY_SECONDS)
async def _work(task: Task) -> None:
    global _handled  # noqa: PLW0603 - a process has one
    _note("begin", task)
    _handled += 1
    if _stuck_at and _handled > _stuck_at:
        _note("stuck", task)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not _is_stubborn:
                    raise
    await asyncio.sleep(0)
    _note("end", task)


def worker() -> Worker:
    """What the command runs."""
    return Worker(None, [_work], name=f"victim-{os.getpid()}", settings=WorkerSettings(shutdown_seconds=20))
