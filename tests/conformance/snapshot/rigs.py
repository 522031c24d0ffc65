"""Places of snapshots for the suite: a folder, and a Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import redis.asyncio

from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.snapshot_store import SnapshotMeta, SnapshotStore, Term, meta_of
from forebay.observe.valkey_snapshots import ValkeySnapshots


class SnapshotRig(Protocol):
    """A place of snapshots, as several processes see it."""

    def open(self, keep_versions: int = 3) -> SnapshotStore:
        """The place, as one more process sees it."""
        ...

    async def run_out(self) -> None:
        """Let the time of the last term run out."""
        ...

    async def tear(self) -> None:
        """Cut the current document short."""
        ...

    async def flush(self) -> None:
        """Remove everything."""
        ...


class FileRig:
    """Snapshots in a folder, at a time that stands still."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = 1_000.0

    def open(self, keep_versions: int = 3) -> FileSnapshots:
        """The place, as one more process sees it."""
        return FileSnapshots(self._folder, keep_versions=keep_versions, now=lambda: self._now)

    async def run_out(self) -> None:
        """Let the time of the last term run out."""
        self._now += 1_000

    async def tear(self) -> None:
        """Cut the current document short."""
        file = self._folder / f"{(self._folder / 'current').read_text().strip()}.data"
        file.write_bytes(file.read_bytes()[:-1])

    async def flush(self) -> None:
        """Remove everything."""
        for file in self._folder.iterdir():
            file.unlink()


class ValkeyRig:
    """Snapshots in Valkey under a prefix of its own."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self.opened: list[ValkeySnapshots] = []

    def open(self, keep_versions: int = 3) -> ValkeySnapshots:
        """The place, as one more process sees it."""
        store = ValkeySnapshots(self._url, prefix=self._prefix, keep_versions=keep_versions)
        self.opened.append(store)
        return store

    async def run_out(self) -> None:
        """Let the time of the last term run out."""
        async with self._client() as client:
            await client.delete(f"{self._prefix}:lock")

    async def tear(self) -> None:
        """Cut the current document short."""
        async with self._client() as client:
            current = (await client.get(f"{self._prefix}:current")).decode()
            key = f"{self._prefix}:{current}:data"
            await client.set(key, (await client.get(key))[:-1])

    async def flush(self) -> None:
        """Remove everything."""
        async with self._client() as client:
            if keys := await client.keys(f"{self._prefix}*"):
                await client.delete(*keys)

    def _client(self) -> Any:
        """A connection of its own: the server may have been killed since the last one."""
        return redis.asyncio.Redis.from_url(self._url)


@asynccontextmanager
async def valkey_rig(url: str, prefix: str) -> AsyncIterator[ValkeyRig]:
    """Give a rig, and close its connections."""
    rig = ValkeyRig(url, prefix)
    try:
        yield rig
    finally:
        for store in rig.opened:
            await store.__aexit__()


def meta(term: Term, data: bytes, at: float = 1.5) -> SnapshotMeta:
    """Metadata of a document that took 20 ms."""
    return meta_of(term, data, source="counters", generated_at=at, seconds=0.02, rows=len(data))
