"""What streams were given, for the other servers of the log: a cycle may come to any of them.

A cycle names the last message of its batch, and nobody but who gave it out knows the others. So where there
are other servers, what a stream is given is noted in the log, for as long as its lease holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Record
from forebay.model import Clock
from forebay.store.process import process_of
from forebay.store.values import Task

SPACE: Final = "queen.hand"
_LOOK_SECONDS: Final = 5.0
"""How old the knowledge of other servers may be."""
_ALIVE_SECONDS: Final = 60
_SECOND: Final = 1_000_000
_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(dict[str, list[int]]).decode


class Lending:
    """See the module."""

    def __init__(self, log: Callable[[], Log], clock: Clock) -> None:
        self._opened = log
        self._clock = clock
        self._alone = True
        self._looked_at = -_LOOK_SECONDS

    async def note(self, lease: str, tasks: Sequence[Task]) -> None:
        """Tell other servers, if there are any, what was given out under a lease."""
        if await self._is_alone():
            return
        given: dict[str, list[int]] = {}
        for task in tasks:
            given.setdefault(_lane(task.queue_num, task.partition), []).append(task.id)
        expires_at = max(task.deadline for task in tasks) + _ALIVE_SECONDS * _SECOND
        await self._opened().commit(records=[Record(SPACE, lease, _encode(given), expires_at)])

    async def find(self, lease: str, queue: int, partition: str) -> list[int]:
        """The messages of a partition that were given out under a lease, by another server."""
        kept = await self._opened().records(SPACE, [lease])
        return _decode(kept[0].value).get(_lane(queue, partition), []) if kept else []

    async def _is_alone(self) -> bool:
        if monotonic() - self._looked_at >= _LOOK_SECONDS:
            since = self._clock.now() - _ALIVE_SECONDS * _SECOND
            alive = [owner.name for owner in await self._opened().owners() if owner.beat_at >= since]
            self._alone, self._looked_at = _is_one(alive), monotonic()
        return self._alone


def _is_one(owners: Sequence[str]) -> bool:
    """Whether all owners may be one server's; what several servers share doesn't say whose it is."""
    processes = {process_of(owner) for owner in owners} - {None}
    shared = sum(process_of(owner) is None for owner in owners)
    return len(processes) <= 1 and shared <= 1


def _lane(queue: int, partition: str) -> str:
    return f"{queue}/{partition}"
