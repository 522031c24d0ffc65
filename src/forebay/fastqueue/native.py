"""Forebay's own chunk files: a head, then records with checksum, sequence number and time.

Drawn byte by byte in docs/explanation/fastqueue-format.md. All numbers are little-endian.

Invariants: a record is read only when its checksum, which its chunk's number is part of, and its sequence
number match; after damage the next record is found by its mark, and counts only if it is sound.
"""

import re
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, cast
from zlib import crc32

import cramjam

from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.layout import LENGTH_MASK, SNAPPY, Buffer, Framed, Head, Parsed
from forebay.fastqueue.record import Place, Record

_NAME: Final = re.compile(r"([0-9a-f]{16})\.chunk", re.ASCII)
_HEAD: Final = Struct("<8sHHIQQQQQI")
_SUM: Final = Struct("<I")
_HEAD_MAGIC: Final = b"FOREBAYQ"
_VERSION: Final = 1
HEAD_BYTES: Final = _HEAD.size + _SUM.size
_MARK: Final = b"\xf1FQ\xb3"
_MARK_NUMBER: Final = int.from_bytes(_MARK, "little")
_RECORD: Final = Struct("<IIQQQ")
_SUMMED: Final = Struct("<QQQ")
_FRONT: Final = Struct("<II")
RECORD_BYTES: Final = _RECORD.size
_WINDOW_BYTES: Final = 1 << 20

_compress = cast("Callable[[bytes], Buffer]", cramjam.snappy.compress_raw)
_expand: Final = cramjam.snappy.decompress_raw


class NativeLayout:
    """Implements `Layout`."""

    head_bytes: Final = HEAD_BYTES
    record_bytes: Final = RECORD_BYTES

    def __init__(self, *, compresses: bool = True) -> None:
        self._compresses = compresses

    def file_name(self, number: int) -> str:
        """The number in 16 hexadecimal digits."""
        return f"{number:016x}.chunk"

    def number(self, name: str) -> int | None:
        """The number of a chunk; None where the name isn't that of one."""
        found = _NAME.fullmatch(name)
        return None if found is None else int(found[1], 16)

    def next_number(self, number: int, _stop: int, _chunk_size: int) -> int:
        """Chunks are counted."""
        return number + 1

    def head(self, head: Head) -> bytes:
        """The first bytes of a chunk."""
        fields = _HEAD.pack(
            _HEAD_MAGIC, _VERSION, HEAD_BYTES, head.identity,
            head.number, head.first, head.previous_end, head.bytes_before, head.chunk_size, 0,
        )  # fmt: skip
        return fields + _SUM.pack(crc32(fields))

    def read_head(self, data: bytes, number: int) -> Head | None:
        """Read a head; None where it isn't one of this chunk."""
        if len(data) < HEAD_BYTES or _SUM.unpack_from(data, _HEAD.size)[0] != crc32(data[: _HEAD.size]):
            return None
        magic, version, size, identity, said, first, end, before, chunk_size, _ = _HEAD.unpack_from(data)
        head = Head(said, first, end, before, chunk_size, identity)
        if (magic, version, size, head.number) != (_HEAD_MAGIC, _VERSION, HEAD_BYTES, number):
            return None
        return head

    def pack(self, datas: Sequence[bytes]) -> list[tuple[int, Buffer]]:
        """Compress blocks, where that makes them smaller."""
        if not self._compresses:
            return [(len(data), data) for data in datas]
        packed: list[Buffer] = list(map(_compress, datas))
        return [
            (size | SNAPPY, small) if size < len(data) else (len(data), data)
            for size, small, data in zip(map(len, packed), packed, datas, strict=True)
        ]

    def frame(
        self, records: Sequence[Record], packed: Sequence[tuple[int, Buffer]], at: int, chunk: int,
        *, enough: int, room: int,
    ) -> Framed:  # fmt: skip
        """Records from index `at` on as they stand in a chunk: until `enough` bytes, within `room`."""
        seed = _seed(chunk)
        pieces: list[Buffer] = []
        add, summed, front, crc = pieces.append, _SUMMED.pack, _FRONT.pack, crc32
        size, count = 0, 0
        while at < len(records) and size < enough:
            word, data = packed[at]
            taken = RECORD_BYTES + (word & LENGTH_MASK)
            if size + taken > room:
                break
            record = records[at]
            fields = summed(word, record.sequence, record.enqueued_at_us)
            add(front(_MARK_NUMBER, crc(data, crc(fields, seed))))
            add(fields)
            add(data)
            size += taken
            count += 1
            at += 1
        return Framed(b"".join(pieces), count)

    def parse(
        self, data: bytes, start: int, chunk: int, sequence: int, *, count: int, bytes_max: int, least: int
    ) -> Parsed:
        """Read records, the first of which has number `sequence`."""
        seed, view, end = _seed(chunk), memoryview(data), len(data)
        records: list[Record] = []
        add, unpack, crc, expand = records.append, _RECORD.unpack_from, crc32, _expand
        fault, needed, held = None, 0, 0
        while count:
            body = start + RECORD_BYTES
            if body > end:
                needed = RECORD_BYTES
                break
            mark, total, word, number, at = unpack(data, start)
            if mark != _MARK_NUMBER or number != sequence:
                fault = "no record begins here" if mark != _MARK_NUMBER else f"not record {sequence}"
                break
            stop = body + (word & LENGTH_MASK)
            if stop > end:
                needed = stop - start
                break
            if crc(view[start + 8 : stop], seed) != total:
                fault = "the checksum does not match"
                break
            block = bytes(expand(view[body:stop])) if word & SNAPPY else data[body:stop]
            held += len(block)
            if held > bytes_max and len(records) >= least:
                held -= len(block)
                break
            add(Record(number, at, block))
            sequence += 1
            count -= 1
            start = stop
        return Parsed(records, start, held, needed, fault)

    def find(self, file: ChunkFile, start: int, stop: int, chunk: int, sequence: int) -> Place | None:
        """The first sound record that begins after `start`, whose number is above `sequence`."""
        at = start + 1
        while at < stop:
            window = file.read_at(at, min(_WINDOW_BYTES, stop - at))
            if not window:
                return None
            found = window.find(_MARK)
            while found >= 0:
                number = _sound(file, at + found, stop, chunk)
                if number is not None and number > sequence:
                    return Place(chunk, at + found, number)
                found = window.find(_MARK, found + 1)
            at += max(1, len(window) - len(_MARK) + 1)
        return None


def _seed(chunk: int) -> int:
    """Where checksums of a chunk begin: a record that was copied from another chunk doesn't match."""
    return crc32(chunk.to_bytes(8, "little"))


def _sound(file: ChunkFile, offset: int, stop: int, chunk: int) -> int | None:
    """The sequence number of the record at an offset; None where there is no sound one."""
    front = file.read_at(offset, RECORD_BYTES)
    if len(front) < RECORD_BYTES:
        return None
    _, total, word, number, _ = _RECORD.unpack(front)
    size = word & LENGTH_MASK
    if offset + RECORD_BYTES + size > stop:
        return None
    data = file.read_at(offset + RECORD_BYTES, size)
    matches: bool = crc32(data, crc32(front[8:], _seed(chunk))) == total
    return number if matches else None
