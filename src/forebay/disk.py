"""The byte backend: what a spool and a FastQueue ask of a disk, so that a simulated one can crash.

Names are relative to the folder of the disk, with `/` for the folder within it. Everything raises `OSError`
as the system does. Several threads may use a disk; a file is used by one at a time.

What a crash leaves: bytes of a file up to its last `sync`, and any part of what was appended after it; names
as they were at the last `sync_folder` of their folder, and any part of what was changed after it, in order.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from forebay.model import Misconfigured, Unavailable

_LOCK: Final = "lock"
_IDENTITY_CHARACTERS: Final = 16
_IDENTITY: Final = re.compile(rb"[0-9a-f]{%d}" % _IDENTITY_CHARACTERS)
_READ_ONLY: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""A file that can't be written may still be read, as one on the disk of a server that is gone."""


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Whether there is no space left, or none for this user."""
    return error.errno in _FULL


_MEDIUM: Final = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)})


def is_medium_fault(error: OSError) -> bool:
    """Whether the disk can't read what it holds; any other error says nothing about the bytes."""
    return error.errno in _MEDIUM


class File(Protocol):
    """An open file: it grows at its end only."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end; when it raises, any part of it may be there."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        ...

    def size(self) -> int:
        """How long the file is."""
        ...

    def truncate(self, size: int) -> None:
        """Cut off what is beyond `size`."""
        ...

    def sync(self) -> None:
        """Return when all bytes are safe. After it has raised, none since the last success are."""
        ...

    def close(self) -> None:
        """Let go of the file; nothing is synced by that."""
        ...


class Lock(Protocol):
    """The folder is ours until this is closed, or the process ends."""

    @property
    def identity(self) -> str:
        """A text that no other folder has, the same each time; a new one where it could not be kept."""
        ...

    def close(self) -> None:
        """Let others in."""
        ...


class Disk(Protocol):
    """A folder of files."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file that exists, or with `create` one that doesn't."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in the same folder, in place of the file that has it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def list(self, folder: str = "") -> list[str]:
        """The names of the files in a folder; none where there is no such folder."""
        ...

    def make_folder(self, folder: str) -> None:
        """Make a folder that survives a crash; one that exists is fine."""
        ...

    def sync_folder(self, folder: str = "") -> None:
        """Return when the names in a folder are safe."""
        ...

    def free_bytes(self) -> int:
        """How much can still be written."""
        ...

    def reserve(self, name: str, size: int) -> None:
        """Make a file that takes up so much space, or give the space of one back with 0."""
        ...

    def lock(self) -> Lock:
        """Take the folder for this process; raise `Misconfigured` when another has it."""
        ...


class _RealLock:
    def __init__(self, descriptor: int, identity: str) -> None:
        self._descriptor = descriptor
        self.identity = identity

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_sync_data: Final = getattr(os, "fdatasync", os.fsync)
"""Bytes and size; when a file was last changed is nothing to wait for."""


class _RealFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def append(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def read_at(self, offset: int, size: int) -> bytes:
        pieces: list[bytes] = []
        while size > 0 and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """A folder of the file system; it is made, with its parents, if it isn't there.

    `use` says in errors what the folder is for.
    """

    def __init__(self, folder: Path, *, use: str = "spool") -> None:
        self.folder = folder
        self._use = use

    def __repr__(self) -> str:
        """Name the folder."""
        return f"RealDisk({str(self.folder)!r})"

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file; what is created can be read by its owner only."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            return _RealFile(os.open(self.folder / name, flags, 0o600))
        except OSError as error:
            if create or error.errno not in _READ_ONLY:
                raise
            return _RealFile(os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        """Rename within a folder."""
        (self.folder / old).replace(self.folder / new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink()

    def list(self, folder: str = "") -> list[str]:
        """The files of a folder, in no order."""
        try:
            with os.scandir(self.folder / folder) as found:
                return [entry.name for entry in found if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it that are missing; sync the name of each that is made."""
        path = self.folder / folder
        if path.is_dir():
            return
        missing = [one for one in path.parents if not one.exists()]
        for one in (*reversed(missing), path):
            one.mkdir(exist_ok=True)
            _sync_folder(one.parent)

    def sync_folder(self, folder: str = "") -> None:
        """Sync the names of a folder."""
        _sync_folder(self.folder / folder)

    def free_bytes(self) -> int:
        """What the file system still gives to this user."""
        return shutil.disk_usage(self.folder).free

    def reserve(self, name: str, size: int) -> None:
        """Allocate a file, or shrink it to nothing."""
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
            else:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def lock(self) -> Lock:
        """Lock the file `lock`, which stays: removing it would let two holders in."""
        try:
            self.make_folder("")
            descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            text = f"the {self._use} folder {self.folder} can't be used: {error.strerror}"
            raise Misconfigured(text, hint="name a folder that this user may write to") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Misconfigured(
                f"another process uses the {self._use} folder {self.folder}",
                hint="end the other one first, work on a copy of the folder, or use a folder of its own",
            ) from None
        except OSError as error:
            os.close(descriptor)
            text = f"the {self._use} folder {self.folder} can't be locked: {error.strerror}"
            raise Unavailable(text, hint="keep it on a local file system") from error
        return _RealLock(descriptor, _identify(descriptor))

    def is_locked(self) -> bool:
        """Tell if a process has the folder now; asks for a shared lock, and gives it back at once."""
        try:
            descriptor = os.open(self.folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _identify(descriptor: int) -> str:
    """The identity that a file holds; it is given one where it has none."""
    known = os.pread(descriptor, _IDENTITY_CHARACTERS + 1, 0)
    if _IDENTITY.fullmatch(known):
        return known.decode()
    identity = secrets.token_hex(_IDENTITY_CHARACTERS // 2)
    with suppress(OSError):  # a disk that is full can still be replayed from
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, identity.encode(), 0)
        os.fsync(descriptor)
    return identity


def identity_of(folder: Path) -> str:
    """The identity of a folder that another process may have, without locking it; nothing where it has none.

    Raises `OSError` where it can't be read.
    """
    with (folder / _LOCK).open("rb") as file:
        known = file.read(_IDENTITY_CHARACTERS + 1)
    return known.decode() if _IDENTITY.fullmatch(known) else ""


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
