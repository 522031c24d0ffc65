"""Snapshots in a folder of this machine: `current` names the version, `v12.data` and `v12.meta` are it.

Files are written beside their names and renamed. Whoever changes something holds the lock of the folder for
that long; who reads doesn't. What is read and gone by then was replaced by a newer one, which is read then.
The time of a term is that of the machine since it was started, which nobody sets. A writer has `term12.lock`
locked for as long as its term lasts: the system unlocks it when the process ends, and others begin at once.
Files that can't be read are written anew by the next writer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from forebay.model import Corrupt, Unavailable
from forebay.observe.snapshot_store import (
    KEEP_VERSIONS,
    Published,
    SnapshotMeta,
    SnapshotStore,
    Term,
    TermOver,
    check_keep,
    check_whole,
    decode_meta,
    encode_meta,
    failed_meta,
)

__all__ = ["FileSnapshots"]

T = TypeVar("T")

_TRIES: Final = 10
_LOCK_SECONDS: Final = 5.0
_LOCK_STEP_SECONDS: Final = 0.02


class _Record(msgspec.Struct, frozen=True):
    """The last term."""

    owner: str = ""
    number: int = 0
    until: float = 0.0
    seconds: float = 0.0


_encode_record: Final = msgspec.json.Encoder().encode
_decode_record: Final = msgspec.json.Decoder(_Record).decode


class FileSnapshots:
    """Snapshots in a folder. `now` is in seconds, the same for all processes of the machine."""

    def __init__(
        self,
        folder: Path,
        *,
        keep_versions: int = KEEP_VERSIONS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._keep = check_keep(keep_versions)
        self._now = now
        self._held: tuple[int, Callable[[], object]] | None = None
        """The number of our term, and what unlocks its file, at the latest when nobody has this object."""

    async def begin_term(self, owner: str, seconds: float) -> Term | None:
        """Begin a term, or go on with one's own; None while another's lasts."""

        def begin() -> Term | None:
            last, now = self._record_or_last_fence(), self._now()
            # A term that would last longer than it may is from before the machine was started.
            lasts = last.owner and now < last.until <= now + last.seconds
            if lasts and last.owner != owner and not self._is_abandoned(last.number):
                self._let_go()
                return None
            number = last.number if lasts and last.owner == owner else last.number + 1
            self._hold(number)
            self._write_record(_Record(owner, number, now + seconds, seconds))
            return Term(owner, number)

        return await self._locked(begin)

    async def renew_term(self, term: Term, seconds: float) -> bool:
        """Let a term last so long from now on; False where another one has begun."""

        def renew() -> bool:
            if not self._is_last(term):
                return False
            self._write_record(_Record(term.owner, term.number, self._now() + seconds, seconds))
            return True

        return await self._locked(renew)

    async def end_term(self, term: Term) -> None:
        """Let others begin at once."""

        def end() -> None:
            self._let_go()
            if self._is_last(term):
                self._write_record(_Record("", term.number))

        await self._locked(end)

    async def publish(self, term: Term, data: bytes, meta: SnapshotMeta) -> int:
        """Make a document the current one; its version."""

        def publish() -> int:
            if not self._is_last(term):
                text = f"term {term.number} of {term.owner} is over"
                raise TermOver(text, hint="another process publishes now")
            kept = self._versions()
            pointer = None
            with suppress(Corrupt):  # it is written anew
                pointer = self._pointer()
            version = max([0, pointer or 0, *kept]) + 1
            self._write(f"v{version}.data", data)
            self._write(f"v{version}.meta", encode_meta(meta))
            check_whole(version, self._read(f"v{version}.data"), meta)
            self._write("current", b"v%d\n" % version)
            for old in [v for v in kept if v <= version - self._keep]:
                (self._folder / f"v{old}.meta").unlink(missing_ok=True)
                (self._folder / f"v{old}.data").unlink(missing_ok=True)
            return version

        return await self._locked(publish)

    async def note_failure(self, term: Term, error: str) -> bool:
        """Say beside the current document that a refresh failed since; False where it can't be said."""

        def note() -> bool:
            version = self._pointer() if self._is_last(term) else None
            if version is None:
                return False
            meta = decode_meta(version, self._read(f"v{version}.meta"))
            self._write(f"v{version}.meta", encode_meta(failed_meta(meta, error)))
            return True

        return await self._locked(note)

    async def current(self, after: int = 0) -> Published | None:
        """The current document; None where there is none, or its version is `after`."""
        return await self._call(lambda: self._current(after))

    async def versions(self) -> list[int]:
        """The versions that are kept, oldest first."""
        return await self._call(self._versions)

    def _current(self, after: int) -> Published | None:
        for _ in range(_TRIES):
            version = self._pointer()
            if version is None or version == after:
                return None
            try:
                meta = decode_meta(version, self._read(f"v{version}.meta"))
                return check_whole(version, self._read(f"v{version}.data"), meta)
            except FileNotFoundError:
                if self._pointer() == version:
                    hint = "the next refresh replaces it"
                    raise Corrupt(f"snapshot v{version} is current, and isn't there", hint=hint) from None
        text = f"the snapshot in {self._folder} was replaced {_TRIES} times while it was read"
        raise Unavailable(text, retry_after_seconds=1.0)

    def _pointer(self) -> int | None:
        try:
            found = self._read("current").strip()
        except FileNotFoundError:
            return None
        if not found.startswith(b"v") or not found[1:].isdigit():
            text = f"{self._folder / 'current'} names no version"
            raise Corrupt(text, hint="the next refresh writes it anew")
        return int(found[1:])

    def _versions(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        names = (path.stem for path in self._folder.glob("v*.data"))
        return sorted(int(name[1:]) for name in names if name[1:].isdigit())

    def _hold(self, number: int) -> None:
        """Show that we are there, for as long as our term lasts."""
        if self._held is not None and self._held[0] == number:
            return
        self._let_go()
        for old in self._folder.glob("term*.lock"):
            if old != self._holder(number):
                old.unlink(missing_ok=True)
        file = os.open(self._holder(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._held = number, weakref.finalize(self, os.close, file)
        with suppress(BlockingIOError):  # the same owner, by another object
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go(self) -> None:
        if self._held is not None:
            self._held[1]()
            self._held = None

    def _is_abandoned(self, number: int) -> bool:
        """Whether the process that has a term has ended."""
        try:
            with self._holder(number).open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError):
            return False
        return True

    def _holder(self, number: int) -> Path:
        return self._folder / f"term{number}.lock"

    def _is_last(self, term: Term) -> bool:
        last = self._record()
        return (last.owner, last.number) == (term.owner, term.number)

    def _record(self) -> _Record:
        try:
            return _decode_record(self._read("term"))
        except FileNotFoundError:
            return _Record()
        except msgspec.DecodeError:
            text = f"{self._folder / 'term'} can't be read"
            raise Corrupt(text, hint="the next refresh writes it anew") from None

    def _record_or_last_fence(self) -> _Record:
        """The last term; where its file can't be read, as high a number as that of any snapshot."""
        try:
            return self._record()
        except Corrupt:
            fences = [0]
            for version in self._versions():
                with suppress(Corrupt, OSError):
                    fences.append(decode_meta(version, self._read(f"v{version}.meta")).fence)
            return _Record(number=max(fences))

    def _write_record(self, record: _Record) -> None:
        self._write("term", _encode_record(record))

    def _read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def _write(self, name: str, data: bytes) -> None:
        beside = self._folder / f"{name}.new"
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self._folder / name)

    async def _locked(self, call: Callable[[], T]) -> T:
        def locked() -> T:
            with self._lock():
                return call()

        return await self._call(locked)

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except OSError as error:
            text = f"snapshots in {self._folder} can't be reached ({error.strerror or error})"
            raise Unavailable(text, hint="they will be tried again", retry_after_seconds=1.0) from None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("ab") as file:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        text = f"the lock of {self._folder} is held by a process that is stuck"
                        raise Unavailable(text, hint="see `lslocks`", retry_after_seconds=5.0) from None
                    time.sleep(_LOCK_STEP_SECONDS)
            yield


_is_a_store: type[SnapshotStore] = FileSnapshots
