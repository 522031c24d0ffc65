"""Reading a spool file as a stream: lines to blocks and settlements, and what is wrong with it.

A block is delivered when all its lines are there. Where some of them are *damaged*, which means that other
bytes are in their place, the rest of the block is delivered. Where some are *missing*, with nothing in their
place, the block was torn while it was written and never acknowledged: all of it is set aside, since its
producer pushes it again, under the same id.

Invariants: memory is bounded by a block and a line of the largest size, whatever the file holds; nothing is
changed; the same bytes give the same result.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from forebay.model import BLOCK_BYTES_CEILING, Block, Headers, Message, Rejected, parse_id
from forebay.spool.disk import File
from forebay.spool.lines import (
    LINE_BYTES_MAX,
    Alone,
    BadLineError,
    Part,
    Spooled,
    SpooledBlock,
    decode_line,
)
from forebay.spool.names import FileName

_CHUNK_BYTES: Final = 256 << 10
_PARTS_BYTES_MAX: Final = 2 * BLOCK_BYTES_CEILING

FaultKind = Literal["damaged", "torn", "refused"]


class Place(msgspec.Struct, frozen=True):
    """Where to go on reading; a place is only good for the file that it came from."""

    offset: int = 0
    line: int = 1


class Stretch(msgspec.Struct, frozen=True):
    """Whole lines of a file that follow each other; `line` is the first, counted from 1."""

    offset: int
    size: int
    line: int
    lines: int = 1


class Found(msgspec.Struct, frozen=True):
    """Something to be replayed, and where it is."""

    entry: Spooled
    stretch: Stretch


class Fault(msgspec.Struct, frozen=True):
    """Something that can't be replayed, where it is, and why."""

    kind: FaultKind
    reason: str
    stretch: Stretch


class Page(msgspec.Struct, frozen=True):
    """A part of a file, in order; `next` is where the following one begins, None at the end."""

    found: list[Found]
    faults: list[Fault]
    next: Place | None
    events: int


class RawLine(msgspec.Struct, frozen=True, gc=False):
    """A line as it is; no `data` where it is too long to be one of ours."""

    offset: int
    number: int
    size: int
    data: bytes | None
    ended: bool


def raw_lines(file: File, start: Place) -> Iterator[RawLine]:
    """Give the lines from a place on; the last one may lack its newline."""
    offset, number = start.offset, start.line
    held, dropped = b"", 0
    while chunk := file.read_at(offset + dropped + len(held), _CHUNK_BYTES):
        *whole, held = (held + chunk).split(b"\n")
        for data in whole:
            size = dropped + len(data) + 1
            yield RawLine(offset, number, size, None if dropped else data, True)
            offset, number, dropped = offset + size, number + 1, 0
        if dropped or len(held) > LINE_BYTES_MAX:
            held, dropped = b"", dropped + len(held)
    if held or dropped:
        yield RawLine(offset, number, dropped + len(held), None if dropped else held, False)


class _Gathering:
    """A block of which some lines were read."""

    def __init__(self, first: Part, line: RawLine, *, torn: bool) -> None:
        self.first = first
        self.id = parse_id(first.block)
        self.messages: list[Message] = []
        self.next = 0
        self.torn = torn
        self.bytes = 0
        self._line = line
        self._end = line
        self._headers: Headers | None = None

    def goes_on_with(self, part: Part) -> bool:
        first = self.first
        return (
            part.block == first.block
            and part.position >= self.next
            and part.size == first.size
            and part.queue == first.queue
        )

    def add(self, part: Part, line: RawLine) -> None:
        message = part.message
        if message.headers is not None and message.headers == self._headers:
            # Most messages of a block have the same headers: as one dict they take no room.
            message = Message(
                message.payload, message.partition, message.transaction_id, self._headers, message.start_time
            )
        elif message.headers is not None:
            self._headers = message.headers
            self.bytes += sum(map(len, message.headers)) + sum(map(len, message.headers.values()))
        self.bytes += len(message.payload)
        if self.bytes <= _PARTS_BYTES_MAX:
            self.messages.append(message)
        self.next = part.position + 1
        self._end = line

    @property
    def stretch(self) -> Stretch:
        first, last = self._line, self._end
        size = last.offset + last.size - first.offset
        return Stretch(first.offset, size, first.number, last.number - first.number + 1)

    def result(self) -> Found | Fault:
        size = self.first.size
        if self.bytes > _PARTS_BYTES_MAX:
            return Fault("damaged", f"block {self.first.block} is larger than any may be", self.stretch)
        if self.torn:
            reason = f"block {self.first.block} has {len(self.messages)} of its {size} lines"
            return Fault("torn", reason, self.stretch)
        block = Block.of(self.messages, id=self.id, created_at=self.first.created_at)
        return Found(SpooledBlock(self.first.queue, block, size - len(block)), self.stretch)


class Assembler:
    """Makes blocks of lines, one line after the other.

    `synced` is the highest place that a line says was safe when the line was written.
    """

    def __init__(self, name: FileName, created_at: int) -> None:
        self._stem = name.stem
        minted_at = name.minted_at()
        self._created_at = created_at if minted_at is None else minted_at
        self._gathering: _Gathering | None = None
        self._bad = 0
        self.synced = 0

    @property
    def at_rest(self) -> bool:
        """Whether reading can go on from here without knowing what came before."""
        return self._gathering is None and not self._bad

    def feed(self, line: RawLine) -> Iterator[Found | Fault]:
        """Take a line, and give what is complete with it."""
        if line.data == b"":
            return
        if not line.ended:
            yield from self.end()
            reason = "the line has no end: it was cut off while it was written"
            yield Fault("torn", reason, _stretch(line))
            return
        try:
            yield from self._take(self._decode(line), line)
        except (BadLineError, Rejected) as error:
            self._bad += 1
            yield Fault("damaged", str(error), _stretch(line))

    def _decode(self, line: RawLine) -> Part | Alone:
        if line.data is None:
            raise BadLineError(f"the line is over {LINE_BYTES_MAX} bytes long")
        return decode_line(line.data, self._stem, line.number, self._created_at)

    def end(self) -> Iterator[Found | Fault]:
        """Give what was left open; a block that lacks its last lines is torn."""
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.torn |= not self._bad
            yield gathering.result()
        self._bad = 0

    def _take(self, decoded: Part | Alone, line: RawLine) -> Iterator[Found | Fault]:
        self.synced = max(self.synced, decoded.synced)
        if isinstance(decoded, Alone):
            yield from self.end()
            yield Found(decoded.entry, _stretch(line))
            return
        gathering = self._gathering
        if gathering is None or not gathering.goes_on_with(decoded):
            torn = decoded.position > 0 and not self._bad
            fresh = _Gathering(decoded, line, torn=torn)
            yield from self.end()
            gathering = self._gathering = fresh
        else:
            gathering.torn |= decoded.position > gathering.next and not self._bad
        self._bad = 0
        gathering.add(decoded, line)
        if gathering.next == decoded.size:
            self._gathering = None
            yield gathering.result()


def _stretch(line: RawLine) -> Stretch:
    return Stretch(line.offset, line.size, line.number)


def walk(file: File, assembler: Assembler) -> Iterator[Found | Fault]:
    """Go through a whole file."""
    for line in raw_lines(file, Place()):
        yield from assembler.feed(line)
    yield from assembler.end()


def scan(
    file: File, name: FileName, start: Place, *, events_max: int, bytes_max: int, created_at: int
) -> Page:
    """Read a page: as much as it takes to have `events_max` events or `bytes_max` bytes, or the rest.

    A block is never divided. `created_at` is for messages whose file doesn't say it.
    """
    assembler = Assembler(name, created_at)
    found: list[Found] = []
    faults: list[Fault] = []
    events = 0
    for line in raw_lines(file, start):
        for item in assembler.feed(line):
            if isinstance(item, Fault):
                faults.append(item)
            else:
                found.append(item)
                events += len(item.entry)
        end = line.offset + line.size
        much = events >= events_max or len(faults) >= events_max or end - start.offset >= bytes_max
        if much and assembler.at_rest:
            return Page(found, faults, Place(end, line.number + 1), events)
    for item in assembler.end():
        if isinstance(item, Fault):
            faults.append(item)
        else:
            found.append(item)
            events += len(item.entry)
    return Page(found, faults, None, events)
