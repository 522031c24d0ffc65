"""The state of streams: values by query, partition and key, as records; and what was read of it here.

A stream reads its state, works, and writes state back together with what it pushes and acknowledges. Whether
somebody changed it in between nobody tells: so the versions that were read here last are remembered, and a
write is checked against them. Invariants: what is remembered is bounded, and forgetting it only makes a write
unchecked; a query that is reset begins a new generation, and never sees what is left of the one before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple

from forebay.log.seam import Log
from forebay.log.values import Kept, Record
from forebay.model import Rejected, TooLarge

SPACE: Final = "queen.state"
KEY_BYTES_MAX: Final = 900
ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20
_SWEPT_MAX: Final = 100_000
_PAGE: Final = 200
"""Values that are read at once: each may be large."""
_READS_MAX: Final = 10_000
_KEYS_MAX: Final = 1_000_000
_GENERATIONS: Final = 1 << 32


class Shard(NamedTuple):
    """The state of one query and partition."""

    query: str
    generation: int
    partition: str
    """Its id."""

    @property
    def prefix(self) -> str:
        """What its keys begin with."""
        return f"{self.query}/{self.generation % _GENERATIONS:08x}/{self.partition}/"


def record_key(shard: Shard, key: str) -> str:
    """Under which key a value is kept; Rejected when it can't be."""
    size = len(key.encode(errors="replace"))
    if not 0 < size <= KEY_BYTES_MAX or "\0" in key:
        text = f"a state key of {size} bytes can't be kept" if "\0" not in key else "a state key has a NUL"
        raise Rejected(text, hint=f"use 1 to {KEY_BYTES_MAX} bytes of text")
    return shard.prefix + key


async def read_keys(log: Log, shard: Shard, keys: Sequence[str]) -> list[Kept]:
    """The values of some keys; those that aren't there are left out."""
    return await log.records(SPACE, [record_key(shard, key) for key in dict.fromkeys(keys)])


async def read_all(log: Log, shard: Shard, prefix: str = "") -> AsyncIterator[Kept]:
    """All values whose keys begin like this; TooLarge rather than a part of them, which would be wrong."""
    begin, last, rows, size = shard.prefix + prefix, "", 0, 0
    while page := await log.scan(SPACE, begin, after=last, limit=_PAGE):
        for kept in page:
            rows, size = rows + 1, size + len(kept.value)
            if rows > ROWS_MAX or size > BYTES_MAX:
                text = f"the state of this partition has more than {ROWS_MAX} keys or {BYTES_MAX} bytes"
                raise TooLarge(text, hint="use more partitions, or shorter windows")
            yield kept
        last = page[-1].key


async def sweep(log: Log, query: str, generation: int) -> None:
    """Remove what is left of a query's earlier generations, up to a bound; the rest is for the next time."""
    current = Shard(query, generation, "").prefix[:-1]
    for _ in range(0, _SWEPT_MAX, _PAGE):
        page = await log.scan(SPACE, f"{query}/", limit=_PAGE)
        old = [Record(SPACE, kept.key) for kept in page if kept.key < current]
        if not old:
            return
        await log.commit(records=old)


class Reads:
    """The versions that were read here last; see the module."""

    def __init__(self) -> None:
        self._shards: OrderedDict[Shard, _Read] = OrderedDict()
        self._keys = 0

    def note(self, shard: Shard, found: Iterable[Kept], *, asked: Sequence[str] | None) -> None:
        """Keys of a shard were read: those that were asked for, or all, of which these were found."""
        read = self._take(shard)
        begin = len(shard.prefix)
        if asked is None:
            read = _Read(is_whole=True)
        read.versions.update(dict.fromkeys(asked or (), 0))
        read.versions.update({kept.key[begin:]: kept.version for kept in found})
        self._put(shard, read)

    def note_some(self, shard: Shard, found: Iterable[Kept]) -> None:
        """Some keys were found, and nothing is known of others."""
        read, begin = self._take(shard), len(shard.prefix)
        read.versions.update({kept.key[begin:]: kept.version for kept in found})
        self._put(shard, read)

    def expected(self, shard: Shard, key: str) -> int | None:
        """The version that whoever writes a key has seen; None when that isn't known."""
        read = self._shards.get(shard)
        if read is None:
            return None
        return read.versions.get(key, 0 if read.is_whole else None)

    def is_outdated(self, shard: Shard, key: str) -> bool:
        """Whether a key was written with an acknowledgement since it was read."""
        read = self._shards.get(shard)
        return read is not None and key in read.versions and read.versions[key] is None

    def written(self, shard: Shard, keys: Iterable[str]) -> None:
        """Keys were written with an acknowledgement, by whoever holds the partition."""
        read = self._take(shard)
        read.versions.update(dict.fromkeys(keys))
        self._put(shard, read)

    def _take(self, shard: Shard) -> _Read:
        read = self._shards.pop(shard, None) or _Read()
        self._keys -= len(read.versions)
        return read

    def _put(self, shard: Shard, read: _Read) -> None:
        self._shards[shard] = read
        self._keys += len(read.versions)
        while self._shards and (len(self._shards) > _READS_MAX or self._keys > _KEYS_MAX):
            _, oldest = self._shards.popitem(last=False)
            self._keys -= len(oldest.versions)


class _Read:
    """What was read of one shard."""

    __slots__ = ("is_whole", "versions")

    def __init__(self, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        """Keys that aren't there were not there when it was read."""
        self.versions: dict[str, int | None] = {}
        """None: written since, by who holds the partition."""
