"""The spool of a server, seen from outside: what waits there, what was set aside, when all is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic


def waiting(folder: Path) -> dict[str, int]:
    """The files that wait to be replayed, by their sizes; those without a byte say nothing."""
    found: dict[str, int] = {}
    for path in [*folder.glob("*.buf"), *folder.glob("*.buf.tmp")]:
        try:
            size = path.stat().st_size
        except FileNotFoundError:  # replayed, or renamed, in this moment
            size = 1
        if size:
            found[path.name] = size
    return found


def set_aside(folder: Path) -> dict[str, str]:
    """What was not taken, by file."""
    return {path.name: path.read_text(errors="replace")[:2000] for path in (folder / "failed").glob("*")}


async def recovered(folder: Path, explain: Callable[[], str], seconds: float = 30) -> None:
    """Wait until nothing is left in a spool."""
    until = monotonic() + seconds
    while files := await asyncio.to_thread(waiting, folder):
        assert monotonic() < until, f"not replayed within {seconds} s: {files}\n{explain()}"


async def replay_begun(folder: Path, explain: Callable[[], str], seconds: float = 30) -> None:
    """Wait until the oldest file of a spool is in the log."""
    before, until = sorted(waiting(folder)), monotonic() + seconds
    while before and before[0] in await asyncio.to_thread(waiting, folder):
        assert monotonic() < until, f"nothing was replayed within {seconds} s: {before}\n{explain()}"


def errors_in(log: Path) -> list[str]:
    """What a server called an error, with its trace."""
    return [line for line in log.read_text().splitlines() if '"level":"error"' in line]
