"""A log as Spark's synchronous code calls it.

Spark runs readers and writers in Python processes of its own, which it keeps for the next task. Each has
one open log for an address, on an event loop in a thread, until the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from forebay.log.seam import Log
from forebay.model import Unavailable
from forebay.spark.keeping import settle_in

Opener = Callable[..., Log]
"""What opens the log at an address: a function of a module, since it is pickled by its name.

A server's log also takes `key` and `ca_file`.
"""

Result = TypeVar("Result")

CALL_SECONDS_MAX: Final = 300.0
"""After so long a call is given up: a task that hangs would never be tried elsewhere."""


class Face:
    """An open log, and how to wait for its answers: `face(face.log.read(queue))`."""

    def __init__(self, opener: Opener, url: str, **credentials: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forebay-log", daemon=True)
        self._thread.start()
        try:
            self.log: Log = self(self._open(opener, url, credentials))
        except BaseException:
            self._end()
            raise

    @staticmethod
    async def _open(opener: Opener, url: str, credentials: dict[str, str]) -> Log:
        return await opener(url, **credentials).__aenter__()

    def __call__(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a call of the log's; Unavailable when it takes too long."""
        return self.wait(self.begin(call))

    def begin(self, call: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a call, to `wait` for it later."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def wait(self, answer: Future[Result]) -> Result:
        """Wait for a call that was begun; Unavailable when it takes too long."""
        try:
            return answer.result(CALL_SECONDS_MAX)
        except TimeoutError as error:
            answer.cancel()
            text = f"the log has not answered for {CALL_SECONDS_MAX:g} s"
            raise Unavailable(text, hint="look at the database or the server") from error

    def close(self) -> None:
        """Close the log and end the thread."""
        try:
            self(self.log.__aexit__(None, None, None))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_faces: dict[tuple[int, str, frozenset[tuple[str, str]]], Face] = {}
_lock: Final = threading.Lock()


def face(opener: Opener, url: str, **credentials: str) -> Face:
    """The open log of this process at an address; whoever asks first opens it."""
    with _lock:
        key = (
            os.getpid(),
            url,
            frozenset(credentials.items()),
        )  # a process that was forked has none of its parent's threads
        found = _faces.get(key)
        if found is None:
            found = _faces[key] = Face(opener, url, **credentials)
            settle_in()  # whoever opens a log has imported what it is for
        return found


@atexit.register
def close_all() -> None:
    """Close every log that this process has opened here."""
    with _lock:
        mine = [key for key in _faces if key[0] == os.getpid()]
        for key in mine:
            # When the interpreter ends, its threads are gone before this runs; so is what they had open.
            with contextlib.suppress(RuntimeError):
                _faces.pop(key).close()
