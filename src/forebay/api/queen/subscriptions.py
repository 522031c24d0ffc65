"""Where groups began, kept apart from them, so that a group that is deleted can begin there again.

Also when a group was last sent elsewhere, or deleted: leases from before that are over, on every server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from forebay.log.seam import Log, VersionConflict
from forebay.log.values import Position, Record, Start

SPACE: Final = "queen.subscription"
_FENCES: Final = "queen.fence"
_FENCED_US: Final = 7 * 86_400 * 1_000_000
"""So long a lease from before is refused; none holds for longer."""
_AT_ONCE: Final = 10_000
_encode: Final = msgspec.json.encode

Mode = Literal["all", "new", "timestamp"]


class Subscription(msgspec.Struct, frozen=True):
    """Where a group of a queue began; times in µs."""

    mode: Mode
    timestamp: int | None
    """As it was asked for, or when the group was made if it wanted new messages only."""
    created_at: int
    position: int | None = None
    """The first sequence number; None where only a time is known."""
    conflation: bool = False
    """Whether the group wants only the newest message of a partition."""

    @property
    def start(self) -> Start:
        """Where a group of that name begins."""
        if self.position is not None:
            return Position(self.position)
        return "earliest" if self.timestamp is None else self.timestamp


def subscription_of(
    start: Start, position: int | None, now: int, *, conflation: bool = False
) -> Subscription:
    """What is kept of a group that was made just now."""
    if start == "latest":
        return Subscription("new", now, now, position, conflation)
    timestamp = start if isinstance(start, int) else None
    mode: Mode = "all" if timestamp is None else "timestamp"
    return Subscription(mode, timestamp, now, position, conflation)


class Subscriptions:
    """See the module. Groups by their names as we keep them."""

    def __init__(self, log: Callable[[], Log]) -> None:
        self._opened = log

    @property
    def _log(self) -> Log:
        return self._opened()

    async def find(self, groups: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Subscription]:
        """The subscriptions of groups, by the number of the queue and the name."""
        by_key = {_key(*group): group for group in groups}
        keys, found = list(by_key), dict[tuple[int, str], Subscription]()
        for begin in range(0, len(keys), _AT_ONCE):
            for kept in await self._log.records(SPACE, keys[begin : begin + _AT_ONCE]):
                found[by_key[kept.key]] = msgspec.json.decode(kept.value, type=Subscription)
        return found

    async def keep(self, queue: int, group: str, subscription: Subscription) -> None:
        """Remember where a group began."""
        await self._log.commit(records=[Record(SPACE, _key(queue, group), _encode(subscription))])

    async def begin(self, queue: int, group: str, subscription: Subscription) -> Subscription:
        """Remember where a group began, unless another server did; what is kept."""
        key = _key(queue, group)
        try:
            await self._log.commit(records=[Record(SPACE, key, _encode(subscription), version=0)])
        except VersionConflict:
            kept = await self.find([(queue, group)])
            return kept.get((queue, group), subscription)
        return subscription

    async def forget(self, queue: int, group: str) -> None:
        """Forget where a group began."""
        await self._log.commit(records=[Record(SPACE, _key(queue, group))])

    async def forget_queue(self, queue: int) -> None:
        """Forget all groups of a queue that is gone."""
        for space in (SPACE, _FENCES):
            while page := await self._log.scan(space, _key(queue, "")):
                await self._log.commit(records=[Record(space, kept.key) for kept in page])

    # Leases

    async def fence(self, queue: int, group: str, now: int) -> None:
        """Leases of a group that were given out before are over."""
        record = Record(_FENCES, _key(queue, group), _encode(now), expires_at=now + _FENCED_US)
        await self._log.commit(records=[record])

    async def fenced_at(self, queue: int, group: str) -> int:
        """Until when leases that were given out are over; 0 when none is."""
        kept = await self._log.records(_FENCES, [_key(queue, group)])
        return msgspec.json.decode(kept[0].value, type=int) if kept else 0


def _key(queue: int, group: str) -> str:
    return f"{queue:06d}/{group}"
