"""The file `fastqueue.meta` of a native queue: where it is, so that a start needn't read everything.

Invariants: it is replaced whole, after the data that it describes is safe; it carries a checksum, and without
it, or with a wrong one, the queue is rebuilt from its chunks.
"""

import contextlib
from typing import Final, Literal
from zlib import crc32

import msgspec

from forebay.disk import Disk

META: Final = "fastqueue.meta"
_TEMPORARY: Final = "fastqueue.meta.tmp"
VERSION: Final = 3
META_BYTES_MAX: Final = 1 << 20
RANGES_MAX: Final = 1024
"""Stretches of acknowledged records beyond the cursor that are remembered."""


class Mark(msgspec.Struct, frozen=True):
    """Where a record begins, or the next one will."""

    sequence: int
    chunk: int
    offset: int


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue at one moment; counts are of records before `end` that aren't acknowledged.

    `near` is the place of a record at or before the cursor. With `is_open` the chunk of `end` can be
    appended to: none of its syncs failed. `bytes_before` counts all bytes ever written
    before `end`. `acked` are stretches of records beyond the cursor, with the bytes of them all.
    """

    name: Literal["fastqueue"] = "fastqueue"
    version: Literal[3] = VERSION
    identity: int
    cursor: int
    near: Mark
    end: Mark
    is_open: bool
    bytes_before: int
    entry_count: int
    total_bytes: int
    acked: list[tuple[int, int]] = []
    acked_bytes: int = 0


class _Summed(msgspec.Struct):
    state: msgspec.Raw
    checksum: str


def encode_meta(meta: Meta) -> bytes:
    """The file's content."""
    state = msgspec.json.format(msgspec.json.encode(meta), indent=2).replace(b"\n", b"\n  ")
    return b'{\n  "state": %b,\n  "checksum": "%08x"\n}\n' % (state, crc32(state))


def decode_meta(data: bytes) -> Meta | None:
    """Read the file's content; None where it isn't what was written."""
    try:
        summed = msgspec.json.decode(data, type=_Summed)
        if summed.checksum != f"{crc32(summed.state):08x}":
            return None
        return msgspec.json.decode(summed.state, type=Meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_file(disk: Disk) -> bytes | None:
    """The bytes of the meta file: None where there is none, nothing where the disk can't read it."""
    try:
        file = disk.open(META)
    except OSError:
        return None
    try:
        return file.read_at(0, META_BYTES_MAX)
    except OSError:
        return b""
    finally:
        file.close()


def write_file(disk: Disk, data: bytes) -> None:
    """Replace the meta file; when it raises, the one before stands."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(_TEMPORARY)
    file = disk.open(_TEMPORARY, create=True)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()
    disk.rename(_TEMPORARY, META)
    disk.sync_folder()
