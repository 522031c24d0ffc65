"""A disk that exists in memory and crashes on purpose.

It keeps less than real ones do: bytes that weren't synced are lost wholly, in part, or with a hole; names are
what they were at the last sync of their folder, and a part of what was done to them since.
"""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from forebay.model import Misconfigured


class CrashError(BaseException):
    """The machine is gone; not an `Exception`, so that nobody handles it."""


@dataclass
class ReadFault:
    """Bytes of a file that can't be read, with the error's number; after `times` readings they can again."""

    start: int
    stop: int
    error: int = errno.EIO
    times: int | None = None


class _Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.live = bytearray(data)
        self.durable = bytes(data)
        self.lost_bytes = False
        self.faults: list[ReadFault] = []

    def survivor(self, chance: random.Random) -> bytes:
        """What is found after a crash."""
        if not self.live.startswith(self.durable):
            return chance.choice((bytes(self.live), self.durable))
        tail = self.live[len(self.durable) :]
        kept = bytearray(tail[: chance.choice((0, len(tail), chance.randint(0, len(tail))))])
        if kept and chance.random() < 0.3:
            start = chance.randrange(len(kept))
            size = chance.randint(1, min(40, len(kept) - start))
            kept[start : start + size] = bytes(size)
        return self.durable + bytes(kept)


class _Open:
    def __init__(self, disk: "SimulatedDisk", inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def append(self, data: bytes) -> None:
        room = self._disk.free_bytes()
        written = data[:room]
        part = self._disk.chance.randint(0, len(written))
        self._disk.step(
            lambda: self._inode.live.extend(written), lambda: self._inode.live.extend(data[:part])
        )
        if len(written) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.check_read(self._inode, offset, offset + size)
        return bytes(self._inode.live[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.live)

    def truncate(self, size: int) -> None:
        def cut() -> None:
            del self._inode.live[size:]

        self._disk.step(cut)

    def sync(self) -> None:
        if self._disk.failing_syncs:
            self._disk.failing_syncs -= 1
            # As on Linux: the pages count as clean from now on, and the next sync succeeds without them.
            self._inode.lost_bytes = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def keep() -> None:
            if not self._inode.lost_bytes:
                self._inode.durable = bytes(self._inode.live)

        self._disk.step(keep)

    def close(self) -> None:
        pass


class _Lock:
    identity = "0123456789abcdef"

    def __init__(self, disk: "SimulatedDisk") -> None:
        self._disk = disk

    def close(self) -> None:
        self._disk.locked = False


class SimulatedDisk:
    """Implements `Disk`; `steps` counts what changes it, and `crash_at` is the step at which it crashes."""

    def __init__(self, seed: int = 0, capacity: int = 1 << 30) -> None:
        self.chance = random.Random(seed)
        self.capacity = capacity
        self.failing_syncs = 0
        self.unopenable: set[str] = set()
        """Names of files that fail to be opened, as those do whose metadata can't be read."""
        self.steps = 0
        self.crash_at: int | None = None
        self.locked = False
        self._reserved = 0
        self._live: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._pending: list[tuple[str, Callable[[dict[str, _Inode]], None]]] = []

    def step(self, act: Callable[[], None], partly: Callable[[], None] | None = None) -> None:
        """Do something that a crash may come before, after, or into the middle of."""
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            if half := self.chance.choice((None, partly, act)):
                half()
            raise CrashError
        act()

    def after_crash(self) -> "SimulatedDisk":
        """What is left of the disk."""
        fresh = SimulatedDisk(self.chance.randrange(1 << 32), self.capacity)
        names = dict(self._durable)
        for folder in {folder for folder, _ in self._pending}:
            changes = [change for where, change in self._pending if where == folder]
            for change in changes[: self.chance.randint(0, len(changes))]:
                change(names)
        for name, inode in names.items():
            fresh._live[name] = fresh._durable[name] = _Inode(inode.survivor(self.chance))
        return fresh

    def flip(self, name: str, offset: int, mask: int = 0xFF) -> None:
        """Change a byte, as bad hardware does."""
        self._live[name].live[offset] ^= mask

    def fail_reads(self, name: str, fault: ReadFault) -> None:
        """Have some bytes of a file fail to be read, as a bad sector does."""
        self._live[name].faults.append(fault)

    def check_read(self, inode: _Inode, start: int, stop: int) -> None:
        """Raise where a reading meets bytes that fail."""
        for fault in inode.faults:
            if fault.times != 0 and start < fault.stop and stop > fault.start:
                if fault.times is not None:
                    fault.times -= 1
                raise OSError(fault.error, os.strerror(fault.error))

    def content(self, name: str) -> bytes:
        """All bytes of a file."""
        return bytes(self._live[name].live)

    def put(self, name: str, data: bytes) -> None:
        """Have a file with this content, durably."""
        self._live[name] = self._durable[name] = _Inode(data)

    def open(self, name: str, *, create: bool = False) -> _Open:
        if create:
            if name in self._live:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            inode = _Inode()
            self._change(name, lambda names: names.update({name: inode}))
        elif name not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if name in self.unopenable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return _Open(self, self._live[name])

    def rename(self, old: str, new: str) -> None:
        def move(names: dict[str, _Inode]) -> None:
            if old in names:
                names[new] = names.pop(old)

        if old not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._change(old, move)

    def remove(self, name: str) -> None:
        if name not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

        def drop(names: dict[str, _Inode]) -> None:
            names.pop(name, None)

        self._change(name, drop)

    def list(self, folder: str = "") -> list[str]:
        return [name.rpartition("/")[2] for name in self._live if name.rpartition("/")[0] == folder]

    def make_folder(self, folder: str) -> None:
        pass

    def sync_folder(self, folder: str = "") -> None:
        def keep() -> None:
            for name in [name for name in self._durable if name.rpartition("/")[0] == folder]:
                del self._durable[name]
            inside = [name for name in self._live if name.rpartition("/")[0] == folder]
            self._durable.update({name: self._live[name] for name in inside})
            self._pending = [item for item in self._pending if item[0] != folder]

        self.step(keep)

    def free_bytes(self) -> int:
        used = sum(len(inode.live) for inode in self._live.values())
        return max(0, self.capacity - used - self._reserved)

    def reserve(self, name: str, size: int) -> None:
        assert name == "reserve"
        if size > self.free_bytes() + self._reserved:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._reserved = size

    def lock(self) -> _Lock:
        if self.locked:
            raise Misconfigured("another process uses the spool folder", hint="end it first")
        self.locked = True
        return _Lock(self)

    def _change(self, name: str, change: Callable[[dict[str, _Inode]], None]) -> None:
        def act() -> None:
            change(self._live)
            self._pending.append((name.rpartition("/")[0], change))

        self.step(act)
