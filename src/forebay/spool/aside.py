"""What can't be replayed, in the folder `failed`: the bytes as they were, and beside them why.

For a file `<stem>.buf` there may be `failed/<stem>.bad`, the lines that could not be read; `<stem>.buf` in
the same folder, what the log refused, in the form of any other spool file, to be tried again; and
`<stem>.reasons`, a line for each of both.

Invariants: bytes are safe here before the file that they came from is removed; reading a file again adds no
reason that was there, and no bytes unless a crash came between the two.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from forebay.disk import Disk, File
from forebay.spool.lines import SpooledBlock, SpooledSettlement, encode_entry
from forebay.spool.names import FAILED, FileName
from forebay.spool.scanning import Fault, FaultKind, Found, Place, raw_lines

_CHUNK_BYTES: Final = 1 << 20


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why lines were set aside; `offset` and `line` are those in `file`, where they came from."""

    file: str
    kind: FaultKind
    reason: str
    line: int
    lines: int = 1
    offset: int
    bytes: int
    set_aside_at: int


_decode: Final = msgspec.json.Decoder(Reason).decode


def keep_faults(disk: Disk, name: FileName, source: File, faults: list[Fault], *, path: str, now: int) -> int:
    """Copy faulty lines out of a file, which is at `path`, and say how many were not there before."""
    listed = reasons(disk, name)
    known = {reason.offset for reason in listed if reason.file == path and reason.kind != "refused"}
    fresh = [fault for fault in faults if fault.stretch.offset not in known]
    if fresh:
        with_bytes = _Tail(disk, f"{FAILED}/{name.stem}.bad")
        for fault in fresh:
            with_bytes.copy(source, fault.stretch.offset, fault.stretch.size)
        with_bytes.close()
        _note(disk, path, name, fresh, now)
    return len(fresh)


def keep_refused(
    disk: Disk, name: FileName, refused: list[Found], reason: str, *, path: str, now: int
) -> None:
    """Keep what the log refused, to be tried again later; `path` is where it came from."""
    tail = _Tail(disk, f"{FAILED}/{name.finished}")
    for found in refused:
        tail.add(encode_entry(_without_damage(found.entry)))
    tail.close()
    _note(disk, path, name, [Fault("refused", reason, found.stretch) for found in refused], now)


def reasons(disk: Disk, name: FileName) -> Iterator[Reason]:
    """What was said about a file's lines; a line of it that was cut off by a crash is left out."""
    listed = f"{name.stem}.reasons"
    if listed not in disk.list(FAILED):
        return
    file = disk.open(f"{FAILED}/{listed}")
    try:
        for line in raw_lines(file, Place()):
            try:
                yield _decode(line.data or b"")
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
    finally:
        file.close()


def _without_damage(entry: SpooledBlock | SpooledSettlement) -> SpooledBlock | SpooledSettlement:
    return SpooledBlock(entry.queue, entry.block) if isinstance(entry, SpooledBlock) else entry


def _note(disk: Disk, path: str, name: FileName, faults: list[Fault], now: int) -> None:
    tail = _Tail(disk, f"{FAILED}/{name.stem}.reasons")
    for fault in faults:
        stretch = fault.stretch
        reason = Reason(
            file=path,
            kind=fault.kind,
            reason=fault.reason,
            line=stretch.line,
            lines=stretch.lines,
            offset=stretch.offset,
            bytes=stretch.size,
            set_aside_at=now,
        )
        tail.add(msgspec.json.encode(reason) + b"\n")
    tail.close()


class _Tail:
    """The end of a file in the folder for what was set aside: whole lines, safe when it is closed."""

    def __init__(self, disk: Disk, path: str) -> None:
        disk.make_folder(FAILED)
        fresh = path.rpartition("/")[2] not in disk.list(FAILED)
        self._file = disk.open(path, create=fresh)
        size = self._file.size()
        # A crash may have left half a line; what follows must not become part of it.
        self._ended = size == 0 or self._file.read_at(size - 1, 1) == b"\n"
        if fresh:
            disk.sync_folder(FAILED)

    def add(self, data: bytes) -> None:
        self._file.append(data if self._ended else b"\n" + data)
        self._ended = data.endswith(b"\n")

    def copy(self, source: File, offset: int, size: int) -> None:
        end = offset + size
        if not self._ended:
            self._file.append(b"\n")
        while offset < end and (piece := source.read_at(offset, min(_CHUNK_BYTES, end - offset))):
            self._file.append(piece)
            self._ended = piece.endswith(b"\n")
            offset += len(piece)

    def close(self) -> None:
        self._file.sync()
        self._file.close()
