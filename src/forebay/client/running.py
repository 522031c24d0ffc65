"""An event loop on a thread of its own, for programs that have none.

Invariants: any thread may call, and none is called back; who is interrupted while waiting cancels what it
waited for; nothing works in a child of a fork, where the thread is not.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from forebay.model import Rejected, Unavailable, cancel
from forebay.store.seam import Store

T = TypeVar("T")


class LoopThread:
    """Runs coroutines of one client, one thread for all callers. It begins with the first call."""

    def __init__(self, client: Store) -> None:
        self._client = client
        self._process = os.getpid()
        self._beginning = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._calls: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return or raise what it does."""
        listed = self._listed(work)
        try:
            future = asyncio.run_coroutine_threadsafe(listed, self._ready())
        except BaseException:
            listed.close()
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise Unavailable(
                "the client was closed before the answer came", hint="open another one"
            ) from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a function where the client's own work is done, so that neither gets in the other's way."""

        async def called() -> T:
            return function()

        return self.run(called())

    def begin(self) -> None:
        """Begin now, and not with the first call."""
        self._ready()

    def close(self) -> None:
        """End what is under way, close connections, end the thread. Twice does nothing more."""
        with self._beginning:
            self._is_closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is None or thread is None or os.getpid() != self._process:
                return
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            _stop(loop, thread)

    def _ready(self) -> asyncio.AbstractEventLoop:
        if os.getpid() != self._process:
            text = "the client was opened before this process was forked off"
            raise Rejected(text, hint="open one in each process")
        with self._beginning:
            if self._is_closed:
                raise Rejected("the client is closed", hint="open another one")
            if self._loop is None:
                self._loop, self._thread = self._begun()
            return self._loop

    def _begun(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="forebay-client", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._client.__aenter__(), loop).result()
        except BaseException:
            _stop(loop, thread)
            raise
        return loop, thread

    async def _listed(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work that ends when the client is closed."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    async def _end(self) -> None:
        """Cancel what others wait for, and close the client, which ends what is its own."""
        await cancel(*self._calls)
        await self._client.__aexit__(None, None, None)
        await asyncio.get_running_loop().shutdown_asyncgens()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
