"""The chunk files of metrics-governor, byte for byte: 8 bytes before each block, and nothing else.

Drawn byte by byte in docs/explanation/fastqueue-format.md. A chunk's number is the offset of its first byte
in the whole stream; there is no head, no checksum, no sequence number and no time.

Invariants: what is written can be read by the original. Of damage, lengths and compressed data that can't be
are found; after it, a block counts only if it and all after it lead to the end of the chunk exactly.
"""

import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import cramjam

from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.layout import LENGTH_MASK, SNAPPY, Buffer, Framed, Head, Parsed
from forebay.fastqueue.record import Place, Record

_NAME: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_WORD: Final = Struct("<Q")
RECORD_BYTES: Final = _WORD.size
_RESERVED: Final = 1 << 62
_LIKELY: Final = re.compile(rb"(?s)(?=(.{5}\x00\x00[\x00\x80]))")
"""A length of less than 2^40 with its flags, at any offset."""
_WINDOW_BYTES: Final = 1 << 20
_RATIO_MAX: Final = 64
"""Snappy makes nothing that many times smaller: a block that claims so is damaged."""

_compress: Final = cramjam.snappy.compress_raw
_expand: Final = cramjam.snappy.decompress_raw
_expanded_bytes: Final = cramjam.snappy.decompress_raw_len


class GovernorLayout:
    """Implements `Layout`."""

    head_bytes: Final = 0
    record_bytes: Final = RECORD_BYTES

    def __init__(self, *, compresses: bool = True, chunk_size: int = 1 << 62) -> None:
        self._compresses = compresses
        self._data_max = chunk_size - RECORD_BYTES

    def file_name(self, number: int) -> str:
        """The offset in 16 hexadecimal digits."""
        return f"{number:016x}"

    def number(self, name: str) -> int | None:
        """The offset of a chunk; None where the name isn't that of one."""
        return int(name, 16) if _NAME.fullmatch(name) else None

    def next_number(self, number: int, stop: int, chunk_size: int) -> int:
        """The next boundary, a multiple of the chunk size."""
        return max((number + stop + chunk_size - 1) // chunk_size, number // chunk_size + 1) * chunk_size

    def head(self, _: Head) -> bytes:
        """There is none."""
        return b""

    def read_head(self, _data: bytes, _number: int) -> Head | None:
        """There is none."""
        return None

    def pack(self, datas: Sequence[bytes]) -> list[tuple[int, Buffer]]:
        """Compress blocks, also those that become larger by it, as the original does."""
        if not self._compresses:
            return [(len(data), data) for data in datas]
        return list(map(self._pack, datas))

    def _pack(self, data: bytes) -> tuple[int, Buffer]:
        packed = memoryview(_compress(data))
        # Only where it would no longer fit into a chunk a block is left as it is.
        return (len(packed) | SNAPPY, packed) if len(packed) <= self._data_max else (len(data), data)

    def frame(
        self, records: Sequence[Record], packed: Sequence[tuple[int, Buffer]], at: int, chunk: int,
        *, enough: int, room: int,
    ) -> Framed:  # fmt: skip
        """Records from index `at` on as they stand in a chunk: until `enough` bytes, within `room`."""
        del chunk
        pieces: list[Buffer] = []
        size = count = 0
        for word, data in packed[at : at + len(records)]:
            taken = RECORD_BYTES + (word & LENGTH_MASK)
            if size >= enough or size + taken > room:
                break
            pieces += (_WORD.pack(word), data)
            size += taken
            count += 1
        return Framed(b"".join(pieces), count)

    def parse(
        self, data: bytes, start: int, chunk: int, sequence: int, *, count: int, bytes_max: int, least: int
    ) -> Parsed:
        """Read records, the first of which gets number `sequence`."""
        del chunk
        view, end, held = memoryview(data), len(data), 0
        records: list[Record] = []
        fault, needed = None, 0
        while count:
            body = start + RECORD_BYTES
            if body > end:
                needed = RECORD_BYTES
                break
            (word,) = _WORD.unpack_from(data, start)
            if fault := self.word_fault(word):
                break
            stop = body + (word & LENGTH_MASK)
            if stop > end:
                needed = stop - start
                break
            block = expand(view[body:stop]) if word & SNAPPY else data[body:stop]
            if block is None:
                fault = "the block does not decompress"
                break
            held += len(block)
            if held > bytes_max and len(records) >= least:
                held -= len(block)
                break
            records.append(Record(sequence, 0, block))
            sequence += 1
            count -= 1
            start = stop
        return Parsed(records, start, held, needed, fault)

    def word_fault(self, word: int) -> str | None:
        """Say what is wrong with the number before a block, if that can be told from itself."""
        if word & _RESERVED:
            return "the reserved bit is set"
        if not word and self._compresses:
            # An empty block that isn't compressed looks so, and the hole that a crash left too.
            return "there are only zeros"
        return None

    def find(self, file: ChunkFile, start: int, stop: int, chunk: int, sequence: int) -> Place | None:
        """The block after a damaged one: by its length if that holds, else by what leads to the end."""
        word = file.read_at(start, RECORD_BYTES) if start >= 0 else b""
        is_whole = len(word) == RECORD_BYTES and not file.holes.overlap(start, start + RECORD_BYTES)
        if is_whole and not self.word_fault(number := _WORD.unpack(word)[0]):
            after = start + RECORD_BYTES + (number & LENGTH_MASK)
            if after <= stop and self.leads(file, after, stop, to_hole=True):
                return Place(chunk, after, sequence + 1) if after < stop else None
        tried: set[int] = set()
        for at in _likely(file, start + 1, stop):
            if self.leads(file, at, stop, tried, checks=True, to_hole=True):
                return Place(chunk, at, sequence)
        return None

    def leads(
        self, file: ChunkFile, at: int, stop: int, tried: set[int] | None = None,
        *, checks: bool = False, to_hole: bool = False,
    ) -> bool:  # fmt: skip
        """Whether blocks follow each other from here to the end; with `checks` they must be sound.

        With `to_hole` it is enough that they follow each other up to bytes that can't be read; with `checks`
        too that takes a block on the way that decompresses.
        """
        tried = set() if tried is None else tried
        is_likely = not checks
        while at < stop and at not in tried:
            tried.add(at)
            front = file.read_at(at, RECORD_BYTES)
            if file.holes.overlap(at, at + RECORD_BYTES):
                return to_hole and is_likely
            if len(front) < RECORD_BYTES or self.word_fault(word := _WORD.unpack(front)[0]):
                return False
            after = at + RECORD_BYTES + (word & LENGTH_MASK)
            if after > stop:
                return False
            if checks and word & SNAPPY:
                if expand(file.read_at(at + RECORD_BYTES, word & LENGTH_MASK)) is None:
                    return False
                is_likely = True
            at = after
        return at == stop


def expand(data: Buffer) -> bytes | None:
    """Decompress a block; None where it can't be one."""
    try:
        if _expanded_bytes(data) > _RATIO_MAX * (len(data) + 1):
            return None
        return bytes(_expand(data))
    except cramjam.DecompressionError:
        return None


def _likely(file: ChunkFile, start: int, stop: int) -> Iterator[int]:
    """Offsets at which a block may begin."""
    while start < stop:
        window = file.read_at(start, min(_WINDOW_BYTES, stop - start))
        if len(window) < RECORD_BYTES:
            return
        for match in _LIKELY.finditer(window):
            yield start + match.start()
        start += len(window) - RECORD_BYTES + 1
