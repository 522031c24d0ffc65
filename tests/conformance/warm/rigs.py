"""Rigs of the warm tier: one per implementation, with a clock that the test moves."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import redis.asyncio

from forebay.model import ManualClock
from forebay.warm.memory import MemoryWarm
from forebay.warm.valkey import ValkeyWarm
from tests.conformance.rigs import BEGIN

if TYPE_CHECKING:
    from forebay.warm.seam import Warm

NAMES = ("memory", "valkey")
FILL_SECONDS = 10.0

_numbers = itertools.count(1)


class WarmRig(ABC):
    """A warm tier under test; `warm` is open between `open` and `close`, and empty at first."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.clock = ManualClock(BEGIN)
        self._open: list[Warm] = []

    @property
    def warm(self) -> Warm:
        """The tier, which is open."""
        return self._open[0]

    async def open(self) -> None:
        """Open the tier."""
        await self.another()

    async def another(self) -> Warm:
        """Open the tier once more, as another server would; the tier itself where it isn't shared."""
        warm = self._make()
        await warm.__aenter__()
        self._open.append(warm)
        return warm

    async def close(self) -> None:
        """Close all that was opened."""
        while self._open:
            await self._open.pop().__aexit__(None, None, None)

    async def fresh(self) -> None:
        """Close the tier and open an empty one, at the first moment."""
        await self.close()
        self._forget()
        self.clock.set(BEGIN)
        await self.open()

    @abstractmethod
    def _make(self) -> Warm: ...

    @abstractmethod
    def _forget(self) -> None: ...

    @abstractmethod
    async def lose(self) -> None:
        """Let the tier lose all that it has, behind its back."""


class MemoryRig(WarmRig):
    """The oracle itself, which must keep its own promises."""

    name = "memory"

    def _make(self) -> Warm:
        if not self._open:
            self._memory = MemoryWarm("memory", clock=self.clock)
        return self._memory

    def _forget(self) -> None:
        pass

    async def lose(self) -> None:
        self._memory._shelves.clear()


class ValkeyRig(WarmRig):
    """A server of the run; each time under another prefix."""

    name = "valkey"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._forget()

    def _make(self) -> Warm:
        # The bound is of no interest here, and the machine may be busy.
        return ValkeyWarm(
            self._url,
            prefix=self._prefix,
            clock=self.clock,
            timeout_seconds=30.0,
            fill_seconds=FILL_SECONDS,
        )

    def _forget(self) -> None:
        self._prefix = f"test-{next(_numbers)}"

    async def keys(self) -> list[str]:
        """The keys that are there."""
        async with redis.asyncio.Redis.from_url(self._url) as client:
            return sorted([key.decode() async for key in client.scan_iter(f"{self._prefix}:*")])

    async def lose(self) -> None:
        async with redis.asyncio.Redis.from_url(self._url) as client:
            keys = await self.keys()
            if keys:
                await client.delete(*keys)
