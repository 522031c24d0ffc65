"""Where the queue of a destination is kept: its folder, its dead letters beside it, and their sizes.

::

    PATH/<name of the destination>/          the queue, a FastQueue
    PATH/<name of the destination>/attempts  how often its entries have failed
    PATH/<name of the destination>/control   a socket, while a relay has it open
    PATH/<name of the destination>/dead/     its dead letters, another one
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from forebay.deliver.attempt_file import AttemptFile
from forebay.deliver.dead_letters import DeadLetters, KeptLetter, letters_of
from forebay.deliver.entry_store import Backing, BackingCounts, MemoryBacking
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import Sizes, memory_limit, sizes
from forebay.disk import RealDisk
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Damage, Record
from forebay.fastqueue.settings import FastQueueSettings
from forebay.model import Misconfigured, SystemClock

__all__ = ["DEAD", "FastBacking", "fast_settings", "folder_name", "open_send_queue", "read_dead_letters"]

logger: Final = logging.getLogger("forebay.deliver")
DEAD: Final = "dead"
_UNSAFE: Final = re.compile(r"[^0-9A-Za-z.]+")
_NAME_CHARACTERS_MAX: Final = 64


def folder_name(destination: str) -> str:
    """The folder of a destination, by its name without secrets: readable, and its own."""
    plain = _UNSAFE.sub("-", destination.partition("://")[2] or destination).strip("-.")
    digest = hashlib.sha256(destination.encode()).hexdigest()[:8]
    return f"{plain[:_NAME_CHARACTERS_MAX]}-{digest}"


def fast_settings(settings: SendQueueSettings, *, memory_bytes: int) -> FastQueueSettings:
    """The settings of the FastQueue below a send queue; limits are the send queue's own."""
    return FastQueueSettings(
        format=settings.format,
        durability=settings.durability,
        inmemory_blocks=settings.inmemory_blocks,
        inmemory_bytes=max(1, memory_bytes),
        chunk_size=settings.chunk_size,
        meta_sync_interval=settings.meta_sync_interval,
        stale_flush=settings.stale_flush_interval,
        write_buffer_size=settings.write_buffer_size,
        compression=settings.compression,
    )


class FastBacking:
    """A FastQueue, as a send queue sees it."""

    def __init__(self, queue: FastQueue) -> None:
        self._queue = queue
        self.push: Callable[[Sequence[bytes]], range] = queue.push
        self.read: Callable[[int, int], list[Record]] = queue.read
        self.ack: Callable[[Iterable[int]], object] = queue.ack
        self.unread: Callable[[int], None] = queue.unread
        self.sync: Callable[[], None] = queue.sync
        self.close: Callable[[], None] = queue.close

    @property
    def entry_count(self) -> int:
        """Entries that aren't acked."""
        return self._queue.entry_count

    @property
    def total_bytes(self) -> int:
        """Their bytes."""
        return self._queue.total_bytes

    def tick(self) -> None:
        """Do what is due."""
        self._queue.tick(time.monotonic())

    def counts(self) -> BackingCounts:
        """The counts so far."""
        queue = self._queue
        return BackingCounts(
            memory_blocks=queue.memory_blocks,
            disk_bytes=queue.disk_bytes,
            meta_syncs=queue.meta_syncs,
            chunk_rotations=queue.rotations,
            memory_flushes=queue.flushes,
            corruptions=queue.corruptions,
        )


async def open_send_queue(
    folder: Path, settings: SendQueueSettings, *, clock: Callable[[], int], folders: Sequence[Path] = ()
) -> SendQueue:
    """Open the queue of one destination; its sizes are known before. Reads what the last run left.

    `folders` are those of all destinations of this process, which share memory and disk.
    """
    limit, folders = memory_limit(), folders or (folder,)
    if settings.type == "memory" or not settings.enabled:
        found = sizes(settings, memory_limit=limit, disk_bytes=None, destinations=len(folders))
        letters = DeadLetters(MemoryBacking(clock), settings.dead_size_max, settings.dead_bytes_max)
        return SendQueue(MemoryBacking(clock), letters, settings, found, clock=clock)
    disk = RealDisk(folder, use="queue")
    backing, dead, found = await asyncio.to_thread(_open_both, disk, settings, limit, clock, folders)
    # Numbers of the other format begin anew with each start, and would be taken for those of other entries.
    noted = AttemptFile(disk) if settings.format == "native" else None
    return SendQueue(backing, dead, settings, found, clock=clock, disk_available=disk.free_bytes, noted=noted)


def _open_both(
    disk: RealDisk,
    settings: SendQueueSettings,
    limit: int | None,
    clock: Callable[[], int],
    folders: Sequence[Path],
) -> tuple[Backing, DeadLetters, Sizes]:
    try:
        disk.make_folder("")
    except OSError as error:
        raise Misconfigured(
            f"the folder {disk.folder} can't be made: {error.strerror}",
            hint="name one that this user may write to: --data",
            key="exporter.queue.path",
        ) from error
    held = sum(_held_bytes(one) + _held_bytes(one / DEAD) for one in folders)
    found = sizes(
        settings,
        memory_limit=limit,
        disk_bytes=disk.free_bytes() + held,
        destinations=len(folders),
        dead_bytes=_held_bytes(disk.folder / DEAD),
    )
    backing = _open(disk, settings, found, clock)
    try:
        return backing, _open_dead(disk.folder, settings, clock), found
    except BaseException:
        backing.close()
        raise


def _open(disk: RealDisk, settings: SendQueueSettings, found: Sizes, clock: Callable[[], int]) -> Backing:
    fast = fast_settings(settings, memory_bytes=found.memory_bytes)
    return FastBacking(FastQueue.open(disk, fast, clock=clock, report=_report(disk)))


def _open_dead(folder: Path, settings: SendQueueSettings, clock: Callable[[], int]) -> DeadLetters:
    """Dead letters are always safe and of our own format, whatever the queue is."""
    disk = RealDisk(folder / DEAD, use="queue")
    kept = msgspec.structs.replace(settings, format="native", durability="always", inmemory_blocks=16)
    fast = fast_settings(kept, memory_bytes=1 << 20)
    return DeadLetters(
        FastBacking(FastQueue.open(disk, fast, clock=clock, report=_report(disk))),
        settings.dead_size_max,
        settings.dead_bytes_max,
    )


def _report(disk: RealDisk) -> Callable[[Damage], None]:
    def report(damage: Damage) -> None:
        logger.error(
            "damage in %s: %s", disk.folder, damage.reason, extra={"damage": msgspec.to_builtins(damage)}
        )

    return report


def _held_bytes(folder: Path) -> int:
    """The bytes of the files in a folder; none where it isn't there yet."""
    total = 0
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # a queue that is open already is done with a file
                total += path.stat().st_size if path.is_file() else 0
    return total


def read_dead_letters(path: Path) -> Iterator[tuple[str, Iterator[KeptLetter]]]:
    """The letters of each destination, the oldest first; out of a copy, so a relay may be running."""
    for folder in sorted(path.glob(f"*/{DEAD}")):
        with tempfile.TemporaryDirectory() as copy:
            _copy_files(folder, Path(copy))
            queue = FastQueue.open(RealDisk(Path(copy)), FastQueueSettings(), clock=SystemClock().now)
            try:
                yield folder.parent.name, letters_of(FastBacking(queue))
            finally:
                queue.close()


def _copy_files(folder: Path, copy: Path) -> None:
    for file in sorted(folder.iterdir()):
        with suppress(FileNotFoundError):  # a relay may be done with a file meanwhile
            if file.is_file():
                shutil.copyfile(file, copy / file.name)
