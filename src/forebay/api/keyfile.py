"""The file of API keys: JSON, a line per key, readable by its owner only.

Invariants: a reader sees the file before a change or after it, never half of it, also across a crash; two
changes at the same time both happen; what can't be read is reported with its line and stays as it is.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from forebay.api.keys import Key
from forebay.file_watch import Stamp, stamp_of
from forebay.model import Misconfigured, Rejected, Unavailable

__all__ = ["KEYS_MAX", "KeyFile", "change_keys", "read_keys", "revoke", "with_key"]

KEYS_MAX: Final = 10_000
"""Keys in a file, valid or not."""
_FILE_BYTES_MAX: Final = 64 << 20
_LOCK_SECONDS: Final = 10.0
_LOCK_LOOK_SECONDS: Final = 0.02
_POSITION: Final = re.compile(r"byte (\d+)")
_INDEX: Final = re.compile(r"\$\.keys\[(\d+)\]")


class KeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    version: Literal[1] = 1
    keys: list[Key]


class _RawFile(msgspec.Struct):
    keys: list[msgspec.Raw]


def read_keys(path: Path) -> tuple[list[Key], Stamp] | None:
    """The keys and the stamp of the file that was read; None where there is no file."""
    try:
        with path.open("rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"the keys in {path} can't be read: {error.strerror}"
        raise Misconfigured(text, hint="let the server's user read the file") from error
    if len(data) > _FILE_BYTES_MAX:
        raise Misconfigured(f"{path} is over {_FILE_BYTES_MAX} bytes long", hint="is it the file of keys?")
    return _parse(data, path), stamp


def _parse(data: bytes, path: Path) -> list[Key]:
    try:
        keys = msgspec.json.decode(data, type=KeyFile).keys
    except msgspec.DecodeError as error:
        line = _line(data, str(error))
        text = f"{path}:{line}: the file of keys is damaged: {error}"
        raise Misconfigured(text, hint="correct the line, or restore the file from a copy") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = f"{path}:{line}: the file of keys is not UTF-8"
        raise Misconfigured(text, hint="restore the file from a copy") from error
    if len({key.id for key in keys}) < len(keys):
        raise Misconfigured(f"{path}: two keys have the same id", hint="remove one of them")
    return keys


def _line(data: bytes, problem: str) -> int:
    """The line of a problem: of the byte that it names, or of the key."""
    if found := _POSITION.search(problem):
        return data.count(b"\n", 0, int(found[1])) + 1
    position = 0
    if found := _INDEX.search(problem):
        with suppress(msgspec.DecodeError, ValueError):
            for raw in msgspec.json.decode(data, type=_RawFile).keys[: int(found[1]) + 1]:
                position = data.index(bytes(raw), position) + 1
    return data.count(b"\n", 0, position) + 1


def change_keys(path: Path, change: Callable[[Sequence[Key]], Sequence[Key]]) -> None:
    """Replace the keys of a file by what `change` makes of them; a missing file is made, with its folder."""
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f"{path.name}.lock")):
            found = read_keys(path)
            _replace(path, change(found[0] if found else ()))
    except OSError as error:
        text = f"the keys in {path} can't be written: {error.strerror}"
        raise Misconfigured(text, hint="name a file in a folder that you may write to") from error


def with_key(keys: Sequence[Key], key: Key, now: int) -> list[Key]:
    """The keys and a new one. Where there are too many, the oldest that are no longer valid go."""
    assert all(other.id != key.id for other in keys), "two random ids are the same"
    kept = list(keys)
    for old in [old for old in keys if old.reason_against(now)][: max(0, len(keys) + 1 - KEYS_MAX)]:
        kept.remove(old)
    if len(kept) >= KEYS_MAX:
        raise Rejected(f"there are {len(kept)} valid keys, as many as there may be", hint="revoke some")
    return [*kept, key]


def revoke(keys: Sequence[Key], id: str, now: int) -> list[Key]:
    """The keys, of which one is no longer valid but stays in the list; doing it again changes nothing."""
    if all(key.id != id for key in keys):
        raise Rejected(f"there is no key with the id {id!a}", hint="see `forebay keys list`")
    return [
        msgspec.structs.replace(key, revoked_at=now) if key.id == id and key.revoked_at is None else key
        for key in keys
    ]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; it stays, since removing it would let two holders in."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                text = f"another process has been changing the keys for {_LOCK_SECONDS:g} s"
                raise Unavailable(text, hint=f"find who holds {path}", retry_after_seconds=_LOCK_SECONDS)
            time.sleep(_LOCK_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(path: Path, keys: Sequence[Key]) -> None:
    """Write beside the file, sync, and put it in its place; only the holder of the lock does."""
    fresh = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        _give_to_owner(descriptor, path)
        file.write(_document(keys))
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _give_to_owner(descriptor: int, path: Path) -> None:
    """Let root make a key for a server that runs as another user, who must be able to read it."""
    if os.geteuid() == 0:
        owner = (path if path.exists() else path.parent).stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _document(keys: Sequence[Key]) -> bytes:
    lines = b",\n".join(map(msgspec.json.encode, keys))
    return b'{"version": 1, "keys": [\n' + lines + (b"\n]}\n" if keys else b"]}\n")
