"""The seam between a FastQueue and the bytes of its chunk files; two layouts implement it."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.record import Place, Record

Buffer = bytes | bytearray | memoryview
SNAPPY: Final = 1 << 63
"""Bit 63 of a record's first number: the data is compressed."""
LENGTH_MASK: Final = (1 << 62) - 1
"""Bits 0 to 61: the length of the data on disk."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """The head of a chunk.

    `previous_end` is the sequence number at which the chunk before it ends, whatever else that holds, and
    `bytes_before` counts the uncompressed bytes of all records that were ever written before it. All chunks
    of a queue and its meta have the same `identity`.
    """

    number: int
    first: int
    previous_end: int
    bytes_before: int
    chunk_size: int
    identity: int = 0


class Framed(msgspec.Struct, frozen=True, gc=False):
    """Bytes of `count` records."""

    data: bytes
    count: int


class Parsed(msgspec.Struct, frozen=True, gc=False):
    """Records that were read, up to the offset `stop` in the data, and why it went no further.

    `needed` is how many bytes the next record has, where they weren't all there; `fault` says what is wrong
    with it. Neither: there were as many as asked for.
    """

    records: list[Record]
    stop: int
    bytes: int
    needed: int
    fault: str | None


class Layout(Protocol):
    """The bytes of chunk files."""

    @property
    def head_bytes(self) -> int:
        """The length of a chunk's head."""
        ...

    @property
    def record_bytes(self) -> int:
        """The bytes of a record besides its data."""
        ...

    def file_name(self, number: int) -> str:
        """The name of a chunk file."""
        ...

    def number(self, name: str) -> int | None:
        """The number of a chunk; None where the name isn't that of one."""
        ...

    def next_number(self, number: int, stop: int, chunk_size: int) -> int:
        """The number of the chunk after the one that ends at `stop`."""
        ...

    def head(self, head: Head) -> bytes:
        """The first bytes of a chunk."""
        ...

    def read_head(self, data: bytes, number: int) -> Head | None:
        """Read a head; None where it isn't one of this chunk."""
        ...

    def pack(self, datas: Sequence[bytes]) -> list[tuple[int, Buffer]]:
        """Compress blocks; each with the number that says how long it is and how it is compressed."""
        ...

    def frame(
        self, records: Sequence[Record], packed: Sequence[tuple[int, Buffer]], at: int, chunk: int,
        *, enough: int, room: int,
    ) -> Framed:  # fmt: skip
        """Records from index `at` on as they stand in a chunk: until `enough` bytes, within `room`."""
        ...

    def parse(
        self, data: bytes, start: int, chunk: int, sequence: int, *, count: int, bytes_max: int, least: int
    ) -> Parsed:
        """Read records, the first of which has number `sequence`; at least `least`, whatever their size."""
        ...

    def find(self, file: ChunkFile, start: int, stop: int, chunk: int, sequence: int) -> Place | None:
        """The next sound record after the damaged one at `start`, which has number `sequence`."""
        ...
