"""Rigs of the store: a log and a warm tier, with a clock that the test moves, and crashes on demand."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Collection
from typing import Any, Final

import pytest

from forebay.api.context import Context
from forebay.api.serving import HttpServer
from forebay.api.settings import ServerSettings
from forebay.client import Client
from forebay.model import ManualClock, cancel
from forebay.store.process import process_name
from forebay.store.seam import Store
from forebay.store.store import LogStore, StoreSettings
from forebay.warm.seam import Warm, WarmAway
from forebay.warm.valkey import ValkeyWarm
from forebay.warm.valkey.server import Argument
from forebay.warm.values import Shelf
from forebay.wire.port import listen
from tests.conformance.rigs import NAMES, Rig

HTTP_LOGS = ("memory", "sqlite")
"""The logs whose store is also worked over HTTP: what is in between is the same for all."""
SHARED_LOGS = ("memory", "sqlite", "postgres")
"""The logs that are worked with a shared warm tier: the store is the same for all, one database is enough."""
PAIRS = [(log, "memory") for log in NAMES] + [(log, "valkey") for log in SHARED_LOGS]
RIGS = PAIRS + [(log, "http") for log in HTTP_LOGS]
"""Logs with warm tiers; and, as if that were one, over HTTP."""

EVERYTHING: Final = frozenset(
    name for name in vars(Warm) if not name.startswith("_") and name not in {"name", "shared", "listen"}
)
"""The verbs of a warm tier for which it must be reached."""
WRITES: Final = EVERYTHING - {"epoch", "held", "next_expiry", "stats", "peek", "running", "announce"}
"""Those that a tier refuses that is full, or that has become a replica."""


def rig_name(parts: tuple[str, str]) -> str:
    """The name of a rig in the names of tests."""
    log, warm = parts
    return f"http-{log}" if warm == "http" else f"{log}-{warm}"


class StoreRig:
    """A store under test; `other` opens a second server on the same log and tier.

    With `http` the store that is tested is the client of a real server, which has the embedded one.
    """

    def __init__(self, log_rig: Rig, valkey_url: str | None, prefix: str, *, http: bool = False) -> None:
        self.log_rig = log_rig
        self._http = http
        self._served: dict[LogStore, Served] = {}
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
    def embedded(self) -> LogStore:
        """The store that was opened first, as it is in its process."""
        return self._open[0]

    @property
    def store(self) -> Store:
        """The store that was opened first."""
        return self._face(self._open[0])

    def embedded_only(self, reason: str) -> None:
        """Leave out the rest of a test over HTTP, where it makes no sense for this reason."""
        if self._http:
            pytest.skip(reason)

    def watch_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the store not look, every tenth of a second, what other processes have put."""

        async def is_anybody_else_there() -> bool:
            return False

        monkeypatch.setattr(self.embedded._watch, "_look", is_anybody_else_there)

    def _face(self, store: LogStore) -> Store:
        return self._served[store].client if self._http else store

    async def open(self, **settings: Any) -> Store:
        """Open a store; the log is open already, and is kept open."""
        warm: Warm | None = None
        if self._valkey_url is not None:
            warm = Reachable(self._valkey_url, prefix=self._prefix, clock=self.clock)
        log = _Kept(self.log_rig.log)
        self._opened += 1
        name = f"{gone_process()}-{self._opened}."
        store = LogStore(log, warm, clock=self.clock, settings=StoreSettings(**settings), name=name)
        await store.__aenter__()
        self._open.append(store)
        if self._http:
            self._served[store] = await Served.open(store, self.clock)
        return self._face(store)

    def cut_off(self, *stores: LogStore, refused: Collection[str] = EVERYTHING) -> None:
        """Let stores (all of them, if none is named) not reach the shared tier, for these verbs of it."""
        for store in stores or self._open:
            assert isinstance(store._shared, Reachable)
            store._shared.refused = refused

    def connect(self, *stores: LogStore) -> None:
        """Let stores, or all of them, reach the shared tier again."""
        self.cut_off(*stores, refused=())

    async def tick(self) -> None:
        """Let every store do a round of upkeep."""
        for store in self._open:
            await store.tick()

    async def crash(self) -> Store:
        """End the store as if its process had died, and open another one as a new process would."""
        await self.kill()
        return await self.open()

    async def kill(self) -> None:
        """End the store that was opened first as if its process had died."""
        store = self._open.pop(0)
        await kill(store)
        if served := self._served.pop(store, None):
            await served.close()

    async def close(self) -> None:
        """Close all stores."""
        while self._open:
            store = self._open.pop()
            if served := self._served.pop(store, None):
                await served.close()
            await store.__aexit__(None, None, None)


class Reachable(ValkeyWarm):
    """A shared tier that a store can be cut off from: the verbs in `refused` find that it is away."""

    refused: Collection[str] = ()

    async def _run(self, verb: str, shelf: Shelf, epoch: str, *arguments: Argument) -> Any:
        self._check(verb)
        return await super()._run(verb, shelf, epoch, *arguments)

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        self._check("announce")
        await super().announce(queue, partitions)

    def _check(self, verb: str) -> None:
        if verb in self.refused:
            raise WarmAway("a test has cut it off", retry_after_seconds=1.0)


class Served:
    """A store behind a real server on a free port, and a client of it."""

    def __init__(self, server: HttpServer, running: asyncio.Task[None], client: Client) -> None:
        self._server = server
        self._running = running
        self.client = client

    @classmethod
    async def open(cls, store: LogStore, clock: ManualClock) -> Served:
        """Serve a store that is open."""
        sock = listen("127.0.0.1:0")
        context = Context(ServerSettings(create_queues=False), clock=clock)
        server = HttpServer(context, lambda: _Kept(store), sock)
        running = asyncio.create_task(server.run())
        client = Client(f"http://127.0.0.1:{sock.getsockname()[1]}", clock=clock)
        await client.__aenter__()
        await server.ready.wait()
        return cls(server, running, client)

    async def close(self) -> None:
        """Stop the server; the store stays open."""
        await self.client.__aexit__(None, None, None)
        self._server.stop()
        await self._running


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
    found: list[asyncio.Task[Any] | None] = [store._ticker, store._watcher, *(w._filling for w in windows)]
    found.extend(job for w in windows for job in w._jobs)
    found.append(None if store._announcements is None else store._announcements._telling)
    return [task for task in found if task is not None]


async def all_waiting(store: LogStore, count: int = 1) -> None:
    """Return once so many workers wait for tasks."""
    async with asyncio.timeout(10):
        while sum(len(w.line) for w in store._windows.values()) < count:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)


class _Kept:
    """A log that stays open when a store is closed, or a store that does when its server is."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


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
