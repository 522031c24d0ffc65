"""Blocks as bytes: format version 1, drawn byte by byte in `docs/explanation/block-format.md`.

Invariants: `decode` is total, so any bytes give a block that keeps its invariants or `Corrupt`;
nothing is allocated on the word of a length that was not checked; what `check_block` lets through
always comes back equal.
"""

import struct
import zlib
from typing import Annotated, Final, TypeVar

import msgspec

from forebay.model.block import Block, shape_fault
from forebay.model.columns import Headers
from forebay.model.compression import Bytes, Compression, compress, expand
from forebay.model.errors import Corrupt, Rejected, TooLarge
from forebay.model.limits import BLOCK_BYTES_CEILING, BLOCK_MESSAGES_CEILING

MAGIC: Final = b"FB"
VERSION: Final = 1
HEADER_BYTES: Final = 40

_HEADER: Final = struct.Struct("<2sBBIq16sII")
_SUMMED: Final = struct.Struct("<2sBBIq16sI")
_CHECKSUM: Final = struct.Struct("<I")
_COMPRESSIONS: Final = dict(enumerate(Compression))

_Rows = msgspec.Meta(max_length=BLOCK_MESSAGES_CEILING)
_Body = tuple[
    Annotated[list[bytes], _Rows],
    Annotated[list[str], _Rows],
    Annotated[list[int], _Rows] | None,
    Annotated[list[str | None], _Rows] | None,
    Annotated[list[Headers], _Rows] | None,
    Annotated[list[int], _Rows] | None,
    Annotated[list[int | None], _Rows] | None,
]
_RawBody = tuple[
    Annotated[list[bytes], _Rows],
    Annotated[list[str], _Rows],
    msgspec.Raw,
    msgspec.Raw,
    Annotated[list[Headers], _Rows] | None,
    Annotated[list[int], _Rows] | None,
    Annotated[list[int | None], _Rows] | None,
]
Columns = TypeVar("Columns", _Body, _RawBody)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Body)
_raw_decoder: Final = msgspec.msgpack.Decoder(_RawBody)
_index_decoder: Final = msgspec.msgpack.Decoder(Annotated[list[int], _Rows] | None)
_ids_decoder: Final = msgspec.msgpack.Decoder(Annotated[list[str | None], _Rows] | None)


class Header(msgspec.Struct, frozen=True):
    """The first 40 bytes of a block; `body_bytes` is the length of the body before compression."""

    compression: Compression
    count: int
    created_at: int
    id: bytes
    body_bytes: int
    checksum: int
    version: int = VERSION


class RawBlock(msgspec.Struct, frozen=True):
    """A block of which two columns are still msgpack, for those who make no object of each of their rows."""

    id: bytes
    created_at: int
    payloads: list[bytes]
    partition_table: list[str]
    partition_index: msgspec.Raw
    transaction_ids: msgspec.Raw
    header_table: list[Headers] | None
    header_index: list[int] | None
    start_times: list[int | None] | None

    def whole(self) -> Block:
        """The block, its columns checked; Corrupt unless they fit."""
        try:
            index = _index_decoder.decode(self.partition_index)
            ids = _ids_decoder.decode(self.transaction_ids)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"the body of a block does not decode ({error})") from None
        return _fitting(
            Block(
                self.id, self.created_at, self.payloads, self.partition_table, index, ids,
                self.header_table, self.header_index, self.start_times,
            )
        )  # fmt: skip


def encode(block: Block, compression: Compression = Compression.LZ4) -> bytes:
    """Write a block that has passed `check_block`, compressed where that pays."""
    if fault := shape_fault(block):
        raise AssertionError(fault)
    try:
        body = _encoder.encode(
            (
                block.payloads,
                block.partition_table,
                block.partition_index,
                block.transaction_ids,
                block.header_table,
                block.header_index,
                block.start_times,
            )
        )
        if len(body) > BLOCK_BYTES_CEILING or len(block) > BLOCK_MESSAGES_CEILING:
            raise TooLarge(
                f"{len(block)} messages of {len(body)} bytes are more than a block holds",
                hint="push fewer messages at once",
            )
        done, stored = compress(body, compression)
        summed = _SUMMED.pack(MAGIC, VERSION, done, len(block), block.created_at, block.id, len(body))
    except (TypeError, UnicodeEncodeError, OverflowError, struct.error) as error:
        raise Rejected(
            f"a block cannot be written ({error})", hint="check it with check_block first"
        ) from error
    return b"".join((summed, _CHECKSUM.pack(zlib.crc32(stored, zlib.crc32(summed))), stored))


def restamp(data: Bytes, created_at: int) -> bytes:
    """A whole block as bytes, made at another time."""
    header = peek_header(data)
    stored = memoryview(data)[HEADER_BYTES:]
    summed = _SUMMED.pack(
        MAGIC, VERSION, header.compression, header.count, created_at, header.id, header.body_bytes
    )
    return b"".join((summed, _CHECKSUM.pack(zlib.crc32(stored, zlib.crc32(summed))), stored))


def peek_header(data: Bytes) -> Header:
    """Read the header without checking the body, which need not be there."""
    if len(data) < HEADER_BYTES:
        raise Corrupt(f"a block is cut short: {len(data)} bytes, where the header alone takes {HEADER_BYTES}")
    fields = _HEADER.unpack_from(data)
    magic, version, number, count, created_at, block_id, body_bytes, checksum = fields
    if magic != MAGIC:
        raise Corrupt(f"a block starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise Corrupt(
            f"a block has format version {version}, and this Forebay reads version {VERSION}",
            hint="a newer Forebay wrote it, or it is damaged: read it with the newer one",
        )
    compression = _COMPRESSIONS.get(number)
    if compression is None:
        raise Corrupt(f"a block has the unknown compression {number}")
    return Header(compression, count, created_at, block_id, body_bytes, checksum)


def verify(data: Bytes) -> Header:
    """Check the header, the lengths and the checksum, without decompressing."""
    header = peek_header(data)
    view = memoryview(data)
    if zlib.crc32(view[HEADER_BYTES:], zlib.crc32(view[: _SUMMED.size])) != header.checksum:
        raise Corrupt("the checksum of a block does not match its bytes")
    if header.count > BLOCK_MESSAGES_CEILING or header.body_bytes > BLOCK_BYTES_CEILING:
        raise Corrupt(f"a block claims {header.count} messages of {header.body_bytes} bytes: too many")
    if header.compression is Compression.NONE and header.body_bytes != len(data) - HEADER_BYTES:
        raise Corrupt(f"a block claims {header.body_bytes} bytes and has {len(data) - HEADER_BYTES}")
    return header


def decode(data: Bytes, *, checked: bool = False) -> Block:
    """Read a block, or raise `Corrupt`: never anything else, whatever the bytes.

    Bytes that were `checked` before are not verified again.
    """
    header = peek_header(data) if checked else verify(data)
    block = Block(header.id, header.created_at, *_columns(data, header, _decoder))
    _check_count(header, block.payloads)
    return _fitting(block)


def decode_raw(data: Bytes) -> RawBlock:
    """Verify and read a block, but for what two of its columns hold; `whole` reads them too."""
    header = verify(data)
    raw = RawBlock(header.id, header.created_at, *_columns(data, header, _raw_decoder))
    _check_count(header, raw.payloads)
    return raw


def _columns(data: Bytes, header: Header, decoder: msgspec.msgpack.Decoder[Columns]) -> Columns:
    body = expand(memoryview(data)[HEADER_BYTES:], header.compression, header.body_bytes)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the body of a block does not decode ({error})") from None


def _check_count(header: Header, payloads: list[bytes]) -> None:
    if len(payloads) != header.count:
        raise Corrupt(f"a block claims {header.count} messages and has {len(payloads)}")


def _fitting(block: Block) -> Block:
    if fault := shape_fault(block):
        raise Corrupt(f"the columns of a block do not fit: {fault}")
    return block
