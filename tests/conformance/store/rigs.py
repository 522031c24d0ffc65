"""Rigs of the store: a log and a warm tier, with a clock that the test moves, and crashes on demand."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

from forebay.model import ManualClock, cancel
from forebay.store.process import process_name
from forebay.store.store import LogStore, StoreSettings
from forebay.warm.seam import Warm
from forebay.warm.valkey import ValkeyWarm

# VALKEY
from tests.conformance.rigs import Rig

WARM_NAMES = ("memory", "valkey")


class StoreRig:
    """A store under test; `other` opens a second server on the same log and tier."""

    def __init__(self, log_rig: Rig, valkey_url: str | None, prefix: str) -> None:
        self.log_rig = log_rig
        self._valkey_url = valkey_url
        self._prefix = prefix
        self._open: list[LogStore] = []
        self._opened = 0

    @property
    def clock(self) -> ManualClock:
        """The clock of log, tier and store."""
        return self.log_rig.clock

    @property
    def shared(self) -> bool:
        """Whether servers share a warm tier."""
        return self._valkey_url is not None

    @property
    def store(self) -> LogStore:
        """The store that was opened first."""
        return self._open[0]

    async def open(self, **settings: Any) -> LogStore:
        """Open a store; the log is open already, and is kept open."""
        warm: Warm | None = None
        if self._valkey_url is not None:
            warm = ValkeyWarm(self._valkey_url, prefix=self._prefix, clock=self.clock)
        log = _Kept(self.log_rig.log)
        self._opened += 1
        name = f"{gone_process()}-{self._opened}."
        store = LogStore(log, warm, clock=self.clock, settings=StoreSettings(**settings), name=name)
        await store.__aenter__()
        self._open.append(store)
        return store

    async def crash(self) -> LogStore:
        """End the store as if its process had died, and open another one as a new process would."""
        store = self._open.pop(0)
        await kill(store)
        return await self.open()

    async def close(self) -> None:
        """Close all stores."""
        while self._open:
            await self._open.pop().__aexit__(None, None, None)


async def kill(store: LogStore) -> None:
    """Stop all that a store does, without letting it say goodbye."""
    for window in store._windows.values():
        window._closed = True
        if window._timer is not None:
            window._timer.cancel()
    while tasks := [task for task in _tasks(store) if not task.done()]:
        await cancel(*tasks)
    if store._shared is not None:
        await store._shared.__aexit__(None, None, None)


def _tasks(store: LogStore) -> list[asyncio.Task[Any]]:
    """All that a store does in the background."""
    windows = store._windows.values()
    found: list[asyncio.Task[Any] | None] = [store._ticker, *(w._filling for w in windows)]
    found.extend(job for w in windows for job in w._jobs)
    return [task for task in found if task is not None]


async def all_waiting(store: LogStore, count: int = 1) -> None:
    """Return once so many workers wait for tasks."""
    async with asyncio.timeout(10):
        while sum(len(w.line) for w in store._windows.values()) < count:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)


class _Kept:
    """A log that stays open when a store is closed."""

    def __init__(self, log: Any) -> None:
        self._log = log

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


_gone: list[str] = []


def gone_process() -> str:
    """The name of a process of this machine that has ended: what it held may be taken over at once."""
    if not _gone:
        ended = subprocess.Popen(["true"])
        ended.wait()
        parts = process_name().split("|")
        parts[4] = str(ended.pid)
        _gone.append("|".join(parts))
    return _gone[0]
