"""One event, one line: messages of blocks and settlements as NDJSON, each line with its checksum.

The format is drawn in docs/explanation/spool-format.md.

Invariants: a block that passes `check_block` gives lines that read back to an equal one; no byte of a line
can change without being noticed; a line never has a newline in it but at its end.
"""

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from typing import Final
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, UnsetType

from forebay.model import (
    BLOCK_BYTES_CEILING,
    BLOCK_MESSAGES_CEILING,
    ID_BYTES,
    Block,
    Headers,
    Message,
    Rejected,
    format_id,
    parse_id,
)
from forebay.model.columns import unfold
from forebay.spool.original import DEFAULT_PARTITION, Address, fields_out, headers_in, kept, shown

LINE_BYTES_MAX: Final = BLOCK_BYTES_CEILING // 3 * 4 + (4 << 20)
"""The longest line that is read: a payload of the largest size in base64, and what surrounds it."""

SYNCED_BYTES_MAX: Final = len(b',"synced":') + 20
"""What `note_synced` adds at most."""

_SUM_BYTES: Final = len(b',"crc":"00000000"}')
_END_BYTES: Final = _SUM_BYTES + len(b"\n")
_OURS: Final = re.compile(rb'"(?:block|settlement|crc)"\s*:|"crc')
_PLAIN_BRACKETS_MAX: Final = 200
_DEPTH_SPARE: Final = 300


class SpooledBlock(msgspec.Struct, frozen=True):
    """A block for a queue; `damaged` of its messages could not be read back and are left out."""

    queue: str
    block: Block
    damaged: int = 0

    def __len__(self) -> int:
        """How many events it is."""
        return len(self.block)


class SpooledSettlement(msgspec.Struct, frozen=True):
    """Outcomes to be settled, in the words of the caller; `id` makes a repetition the same write."""

    id: bytes
    payload: bytes

    def __len__(self) -> int:
        """One event."""
        return 1


Spooled = SpooledBlock | SpooledSettlement


class _Head(msgspec.Struct, omit_defaults=True):
    queue: str
    partition: str
    original: bool = False


class _Common(msgspec.Struct):
    block: str
    size: int
    created_at: int


class _SettlementLine(msgspec.Struct, kw_only=True, gc=False):
    id: str
    settlement: bytes


class Line(msgspec.Struct, gc=False):
    """Whatever may be in a line; what kind it is shows in what is there.

    The keys of ours come in the order in which they are written, which makes reading them quicker.
    """

    queue: str | None = None
    partition: str = DEFAULT_PARTITION
    original: bool = False
    payload: Raw | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    task: str | None = None
    block: str | None = None
    size: int = 1
    created_at: int = 0
    headers: dict[str, str] | None = None
    position: int = 0
    start_time: int | None = None
    synced: int = 0
    id: str | None = None
    settlement: bytes | UnsetType = UNSET


class Part(msgspec.Struct, frozen=True, gc=False):
    """A line that is one message of a block."""

    queue: str
    block: str
    position: int
    size: int
    created_at: int
    message: Message
    synced: int = 0


class Alone(msgspec.Struct, frozen=True):
    """A line that stands for itself: a settlement, or a message of the original server."""

    entry: Spooled
    synced: int = 0


class BadLineError(Exception):
    """The line can't be read; the text says why."""


_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines
_decode: Final = msgspec.json.Decoder(Line).decode
_skip: Final = msgspec.json.Decoder(Raw).decode
_skip_each: Final = msgspec.json.Decoder(list[Raw]).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_entry(entry: Spooled) -> bytes:
    """The lines of an entry; a block is taken to have passed `check_block`."""
    if isinstance(entry, SpooledSettlement):
        return _summed(_encode(_SettlementLine(id=format_id(entry.id), settlement=entry.payload))[:-1])
    bodies = _message_bodies(entry.queue, entry.block)
    return b"".join(chain.from_iterable(zip(bodies, _ends(bodies), strict=True)))


def _message_bodies(queue: str, block: Block) -> list[bytes]:
    """The lines without their checksums: what messages have in common is encoded once."""
    heads = [_head(Address(queue, partition)) for partition in block.partition_table]
    common = _Common(format_id(block.id), len(block), block.created_at)
    tails = [_tail(headers, common) for headers in block.header_table or ({},)]
    rows = zip(
        unfold(heads, block.partition_index, len(block)),
        *_payload_columns(block.payloads),
        _transaction_column(block.transaction_ids),
        unfold(tails, block.header_index, len(block)),
        range(len(block)),
        strict=False,
    )
    lines = [b'%b,"%b":%b,"transaction_id":%b,%b,"position":%d' % row for row in rows]
    if block.start_times is None:
        return lines
    return [
        line if start_time is None else b'%b,"start_time":%d' % (line, start_time)
        for line, start_time in zip(lines, block.start_times, strict=True)
    ]


def _head(address: Address) -> bytes:
    """Where a message goes, in the original server's words; `original` says that these aren't ours."""
    names = shown(address)
    return _encode(_Head(*names, original=names != address))[:-1]


def _tail(headers: Headers, common: "_Common") -> bytes:
    """What is the same for all messages of a block that have these headers."""
    tail = _encode(fields_out(headers))[1:-1] + b"," + _encode(common)[1:-1]
    return tail + b',"headers":' + _encode(headers) if headers else tail


def _transaction_column(ids: list[str | None] | None) -> Iterable[bytes]:
    """Every transaction id as JSON, in which there are no newlines; what is beyond the last one is empty."""
    return repeat(b"null") if ids is None else _encode_lines(ids).split(b"\n")


def _payload_columns(payloads: list[bytes]) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """The keys and the values of payloads in their lines."""
    if are_json(payloads):
        return repeat(b"payload"), payloads
    plain = list(map(is_json, payloads))
    values = [payload if as_is else _encode(payload) for payload, as_is in zip(payloads, plain, strict=True)]
    return [b"payload" if as_is else b"payload_base64" for as_is in plain], values


def are_json(payloads: list[bytes]) -> bool:
    """Whether `is_json` is true of all, at a third of the price; no doesn't mean much."""
    joined = b",".join(payloads)
    try:
        # As long as they are, and as many, and nothing between them: each value found is one of them.
        if list(map(len, _skip_each(b"[%b]" % joined))) != list(map(len, payloads)) or b"\n" in joined:
            return False
        joined.decode()
        deep = [payload for payload in payloads if len(payload) > 2 * _PLAIN_BRACKETS_MAX]
        if deep:
            _skip(b"[" * _DEPTH_SPARE + b",".join(deep) + b"]" * _DEPTH_SPARE)
    except _UNREADABLE:
        return False
    return True


def is_json(payload: bytes) -> bool:
    """Whether the payload can stand in a line as it is and come back with every byte."""
    try:
        if b"\n" in payload or len(_skip(payload)) != len(payload):
            return False
        if not payload.isascii():
            payload.decode()
        if payload.count(b"[") + payload.count(b"{") > _PLAIN_BRACKETS_MAX:
            # Whoever reads may have less of the stack left than we have.
            _skip(b"[" * _DEPTH_SPARE + payload + b"]" * _DEPTH_SPARE)
    except _UNREADABLE:
        return False
    return True


def _summed(body: bytes) -> bytes:
    """Close a line that lacks its last brace, with the checksum of what is before."""
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def _ends(bodies: list[bytes]) -> list[bytes]:
    """What `_summed` adds to each of some lines, all at once: digits are made much quicker that way."""
    sums = array("I", map(crc32, bodies))
    if sys.byteorder == "little":
        sums.byteswap()
    between = sums.tobytes().hex(" ", sums.itemsize).encode().replace(b" ", b'"}\n ,"crc":"')
    return (b',"crc":"%b"}\n' % between).split(b" ")


def note_synced(lines: bytes, synced: int) -> bytes:
    """Say in the first of some lines that all bytes of the file before `synced` are safe."""
    end = lines.index(b"\n")
    return _summed(b'%b,"synced":%d' % (lines[: end - _SUM_BYTES], synced)) + lines[end + 1 :]


def decode_line(line: bytes, name: str, number: int, created_at: int) -> Part | Alone:
    """Read a line without its newline; raise `BadLineError` where it isn't what was written.

    The last three are for lines of the original server, which have neither ids nor times: `name` is what the
    file is called without its endings, and makes the id together with the line and its number.
    """
    summed = line[-_SUM_BYTES:] == b',"crc":"%08x"}' % crc32(line[:-_SUM_BYTES])
    if not summed and _OURS.search(line):
        raise BadLineError("the checksum does not match")
    try:
        found = _decode(line)
    except _UNREADABLE as error:
        raise BadLineError(str(error)) from None
    try:
        if not summed:
            return _of_original(found, _digest_id(b"%b\n%d\n%b" % (name.encode(), number, line)), created_at)
        if found.settlement is not UNSET:
            return Alone(SpooledSettlement(parse_id(found.id or ""), found.settlement), found.synced)
        return _part(_renamed(found) if found.original else found)
    except Rejected as error:
        raise BadLineError(error.message) from None


def decode_ours(lines: Sequence[bytes]) -> list[Line] | None:
    """Read lines with their newlines; None unless every one of them is ours, and sound."""
    if _ends([line[:-_END_BYTES] for line in lines]) != [line[-_END_BYTES:] for line in lines]:
        return None
    try:
        return [_renamed(line) if line.original else line for line in map(_decode, lines)]
    except (*_UNREADABLE, Rejected):
        return None


def _renamed(line: Line) -> Line:
    """A line with our names for the original server's."""
    line.queue, line.partition = kept(Address(line.queue or "", line.partition))
    return line


def _part(line: Line) -> Part:
    if line.queue is None or line.block is None:
        raise BadLineError("the line is neither a message nor a settlement")
    if not 0 <= line.position < line.size <= BLOCK_MESSAGES_CEILING:
        raise BadLineError(f"position {line.position} of {line.size} can't be")
    message = Message(
        payload_of(line), line.partition, line.transaction_id, line.headers or None, line.start_time
    )
    return Part(line.queue, line.block, line.position, line.size, line.created_at, message, line.synced)


def _of_original(line: Line, id: bytes, created_at: int) -> Alone:
    if line.queue is None:
        raise BadLineError("the line has no queue")
    queue, partition = kept(Address(line.queue, line.partition))
    headers = headers_in(line.trace_id, line.namespace, line.task)
    message = Message(payload_of(line), partition, line.transaction_id or None, headers)
    return Alone(SpooledBlock(queue, Block.of([message], id=id, created_at=created_at)))


def payload_of(line: Line) -> bytes:
    """The payload of a message; raise `BadLineError` where there is none."""
    if line.payload is not UNSET:
        return bytes(line.payload)
    if line.payload_base64 is not UNSET:
        return line.payload_base64
    raise BadLineError("the line has no payload")


def derive_id(id: bytes, position: int) -> bytes:
    """An id for one message of a block that goes its own way, always the same."""
    return _digest_id(b"%b%d" % (id, position))


def _digest_id(data: bytes) -> bytes:
    """A UUID of version 8 (RFC 9562)."""
    digest = bytearray(blake2b(data, digest_size=ID_BYTES).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)
