"""Hearing what other servers announce: one subscription, kept up for as long as the tier is open.

Invariants: a lost connection ends nothing, and is tried again after a wait that has a bound; `stop` leaves
no task behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import msgspec

from forebay.model import cancel
from forebay.warm.seam import Heard, WarmAway
from forebay.warm.valkey.server import Server

_WAIT_SECONDS_MIN: Final = 0.05
_WAIT_SECONDS_MAX: Final = 2.0
PARTITIONS_MAX: Final = 1_000
"""Of more partitions than these it is only said that there is something."""


class Ears:
    """Calls every listener with what is said on a channel.

    `hearing` is set while we are subscribed, `deaf` while we aren't; `problem` says why we can't be.
    """

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._listeners: list[Heard] = []
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        self.hearing = asyncio.Event()
        self.deaf = asyncio.Event()
        self.deaf.set()
        self.problem: str | None = None

    def add(self, heard: Heard) -> None:
        """Add a listener."""
        self._listeners.append(heard)
        self._start()

    def open(self) -> None:
        """Begin to hear, once there is a listener."""
        self._is_open = True
        self._start()

    async def stop(self) -> None:
        """Hear no more; returns when the connection is closed."""
        self._is_open = False
        task, self._task = self._task, None
        await cancel(task)

    def _start(self) -> None:
        if self._is_open and self._listeners and self._task is None:
            self._task = asyncio.create_task(self._hear(), name=f"ears {self._channel}")

    async def _hear(self) -> None:
        wait = _WAIT_SECONDS_MIN
        while True:
            try:
                async with self._server.subscription(self._channel) as texts:
                    wait = _WAIT_SECONDS_MIN
                    self.problem = None
                    self.deaf.clear()
                    self.hearing.set()
                    async for text in texts:
                        self._tell(text)
            except WarmAway as error:
                self.problem = error.message
            finally:
                self.hearing.clear()
                self.deaf.set()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _WAIT_SECONDS_MAX)

    def _tell(self, text: str) -> None:
        text, _, names = text.partition(" [")
        queue, _, group = text.partition(" ")
        if not queue.isdecimal() or not (group or "0").isdecimal():
            return  # whoever said this wasn't one of us
        partitions = _read_names(names)
        loop = asyncio.get_running_loop()
        for heard in self._listeners:
            # By the loop, so that what a listener raises is reported there and ends nothing here.
            loop.call_soon(heard, int(queue), int(group) if group else None, partitions)


def words(queue: int, group: int | None = None, *, partitions: Collection[str] | None = None) -> str:
    """What is said when something was put in a queue, or when the shelf of a group was filled."""
    if group is not None:
        return f"{queue} {group}"
    if partitions is None or len(partitions) > PARTITIONS_MAX:
        return str(queue)
    return f"{queue} {msgspec.json.encode(list(partitions)).decode()}"


def _read_names(names: str) -> list[str] | None:
    """The partitions that were said, if any were, and if they can be read."""
    try:
        return msgspec.json.decode(f"[{names}", type=list[str]) if names else None
    except msgspec.DecodeError:
        return None
