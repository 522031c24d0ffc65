"""Which partition an id is: what acknowledgements and look-ups begin with.

Invariants: the id of a partition is told to nobody before it is in the directory, here and in the log; so
every server knows it, also after a restart, for as long as the queue exists. What is known here is bounded,
and the log is asked for the rest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from forebay.api.queen.identity import partition_uuid
from forebay.log.seam import Log
from forebay.log.values import Queue, Record

SPACE: Final = "queen.partition"
_LISTING: Final = "queen.partition.of"
"""The same by queue and name, for lists."""
_KNOWN_MAX: Final = 200_000
_WRITTEN_AT_ONCE: Final = 5_000
_ASKED_AT_ONCE: Final = 10_000
_ID_LENGTH: Final = 36
_UNKNOWN: Final = -1
_LINGER_US: Final = 3_600_000_000
PAGE: Final = 1_000
_encode: Final = msgspec.json.encode


class Partition(NamedTuple):
    """A partition by the number of its queue and its name, as we keep it."""

    queue: int
    name: str


class Directory:
    """See the module."""

    def __init__(self, log: Callable[[], Log]) -> None:
        self._opened = log
        self._known: OrderedDict[str, tuple[Partition, int]] = OrderedDict()
        """With when its queue was made: one that is deleted and made again has the same number."""

    @property
    def _log(self) -> Log:
        return self._opened()

    async def enter(self, queue: Queue, names: Iterable[str]) -> None:
        """Have partitions in the directory, before their ids are told."""
        fresh = dict[str, Partition]()
        for name in names:
            partition = Partition(queue.number, name)
            if self._known.get(id := partition_uuid(*partition)) != (partition, queue.created_at):
                fresh[id] = partition
        if not fresh:
            return
        entries = list(fresh.items())
        for begin in range(0, len(entries), _WRITTEN_AT_ONCE):
            await self._write(entries[begin : begin + _WRITTEN_AT_ONCE], queue.created_at)

    async def _write(self, entries: list[tuple[str, Partition]], made_at: int) -> None:
        found = await self._log.records(SPACE, [id for id, _ in entries])
        kept = {one.key for one in found if one.expires_at is None}
        records = [
            record
            for id, partition in entries
            if id not in kept
            for record in (
                Record(SPACE, id, _encode(partition)),
                Record(_LISTING, _listed(partition.queue, partition.name), b"1"),
            )
        ]
        if records:
            await self._log.commit(records=records)
        self._remember(entries, made_at)

    async def find(self, ids: Iterable[str]) -> dict[str, Partition]:
        """The partitions of ids, by these in lower case; those that are none are left out."""
        wanted = {id.lower() for id in ids if len(id) == _ID_LENGTH and id.isascii() and id.isprintable()}
        found = {id: known[0] for id in wanted if (known := self._known.get(id)) is not None}
        missing = sorted(wanted - found.keys())
        for begin in range(0, len(missing), _ASKED_AT_ONCE):
            kept = await self._log.records(SPACE, missing[begin : begin + _ASKED_AT_ONCE])
            more = [(k.key, Partition(*msgspec.json.decode(k.value, type=tuple[int, str]))) for k in kept]
            self._remember(more, _UNKNOWN)
            found.update(more)
        return found

    async def names(self, queue: int, *, after: str | None = None) -> AsyncIterator[str]:
        """The names of a queue's partitions, in order, as they were first seen here."""
        prefix = _listed(queue, "")
        last = "" if after is None else _listed(queue, after)
        while page := await self._log.scan(_LISTING, prefix, after=last, limit=PAGE):
            for kept in page:
                yield kept.key[len(prefix) :]
            if len(page) < PAGE:
                return
            last = page[-1].key

    async def counts(self) -> Counter[int]:
        """How many partitions each queue has; costs by all of them."""
        found: Counter[int] = Counter()
        last = ""
        while page := await self._log.scan(_LISTING, after=last, limit=PAGE):
            found.update(int(kept.key.partition("/")[0]) for kept in page)
            if len(page) < PAGE:
                break
            last = page[-1].key
        return found

    async def forget(self, queue: int, now: int) -> None:
        """Take the partitions of a queue that is gone out of the directory.

        Ids are still found for a while: when the queue is made again, other servers may not know yet that it
        was gone, and tell ids that they believe to be here.
        """
        names = [name async for name in self.names(queue)]
        for begin in range(0, len(names), _WRITTEN_AT_ONCE):
            part = names[begin : begin + _WRITTEN_AT_ONCE]
            ids = [partition_uuid(queue, name) for name in part]
            records = [
                Record(SPACE, id, _encode(Partition(queue, name)), now + _LINGER_US)
                for id, name in zip(ids, part, strict=True)
            ]
            records += [Record(_LISTING, _listed(queue, name)) for name in part]
            await self._log.commit(records=records)
            for id in ids:
                self._known.pop(id, None)

    def _remember(self, entries: Iterable[tuple[str, Partition]], made_at: int) -> None:
        self._known.update((id, (partition, made_at)) for id, partition in entries)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)


def _listed(queue: int, name: str) -> str:
    return f"{queue:06d}/{name}"
