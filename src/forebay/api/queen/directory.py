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
from forebay.log.values import Record

SPACE: Final = "queen.partition"
_LISTING: Final = "queen.partition.of"
"""The same by queue and name, for lists."""
_KNOWN_MAX: Final = 200_000
_WRITTEN_AT_ONCE: Final = 5_000
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
        self._known: OrderedDict[str, Partition] = OrderedDict()

    @property
    def _log(self) -> Log:
        return self._opened()

    async def enter(self, queue: int, names: Iterable[str]) -> None:
        """Have partitions in the directory, before their ids are told."""
        fresh = {
            id: Partition(queue, name)
            for name in names
            if (id := partition_uuid(queue, name)) not in self._known
        }
        if not fresh:
            return
        entries = list(fresh.items())
        for begin in range(0, len(entries), _WRITTEN_AT_ONCE):
            await self._write(entries[begin : begin + _WRITTEN_AT_ONCE])

    async def _write(self, entries: list[tuple[str, Partition]]) -> None:
        kept = {found.key for found in await self._log.records(SPACE, [id for id, _ in entries])}
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
        self._remember(entries)

    async def find(self, ids: Iterable[str]) -> dict[str, Partition]:
        """The partitions of ids; those that are none are left out."""
        wanted = set(ids)
        found = {id: partition for id in wanted if (partition := self._known.get(id)) is not None}
        missing = sorted(wanted - found.keys())
        if missing:
            kept = await self._log.records(SPACE, missing)
            more = [(k.key, Partition(*msgspec.json.decode(k.value, type=tuple[int, str]))) for k in kept]
            self._remember(more)
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

    async def forget(self, queue: int) -> None:
        """Take the partitions of a queue that is gone out of the directory."""
        names = [name async for name in self.names(queue)]
        for begin in range(0, len(names), _WRITTEN_AT_ONCE):
            part = names[begin : begin + _WRITTEN_AT_ONCE]
            ids = [partition_uuid(queue, name) for name in part]
            records = [Record(SPACE, id) for id in ids]
            records += [Record(_LISTING, _listed(queue, name)) for name in part]
            await self._log.commit(records=records)
            for id in ids:
                self._known.pop(id, None)

    def _remember(self, entries: Iterable[tuple[str, Partition]]) -> None:
        self._known.update(entries)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)


def _listed(queue: int, name: str) -> str:
    return f"{queue:06d}/{name}"
