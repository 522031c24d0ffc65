"""Reading a spool file as a stream: lines to blocks and settlements, and what is wrong with it.

A block is delivered when all its lines are there. Where some of them are *damaged*, which means that other
bytes are in their place, the rest of the block is delivered. Where some are *missing*, with nothing in their
place, the block was torn while it was written and never acknowledged: all of it is set aside, since its
producer pushes it again, under the same id.

Invariants: memory is bounded by a block and a line of the largest size, whatever the file holds; nothing is
changed; the same bytes give the same result.
"""

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import accumulate
from typing import Final, Literal

import msgspec

from forebay.disk import File
from forebay.model import Rejected
from forebay.spool.gathering import Gathering
from forebay.spool.lines import (
    LINE_BYTES_MAX,
    Alone,
    BadLineError,
    Line,
    Part,
    Spooled,
    SpooledBlock,
    decode_line,
    decode_ours,
)
from forebay.spool.names import FileName

_CHUNK_BYTES: Final = 256 << 10
_RUN_LINES: Final = 1_000

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


class Run(msgspec.Struct, frozen=True):
    """Whole lines that follow each other, with their newlines; the first is at `offset`."""

    offset: int
    number: int
    lines: list[bytes]

    def __iter__(self) -> Iterator[RawLine]:
        """Give the lines one by one."""
        offset = self.offset
        for number, line in enumerate(self.lines, self.number):
            yield RawLine(offset, number, len(line), line[:-1], True)
            offset += len(line)

    def cut(self, count: int) -> "tuple[Run, Run]":
        """Divide it after so many lines."""
        first, rest = self.lines[:count], self.lines[count:]
        return Run(self.offset, self.number, first), Run(
            self.offset + sum(map(len, first)), self.number + len(first), rest
        )


def runs(file: File, start: Place) -> Iterator[Run | RawLine]:
    """Give the lines from a place on; those that are too long, and a last one without newline, alone."""
    offset, number = start.offset, start.line
    held: list[bytes] = []
    held_bytes = dropped = 0
    while chunk := file.read_at(offset + dropped + held_bytes, _CHUNK_BYTES):
        held.append(chunk)
        held_bytes += len(chunk)
        if b"\n" in chunk:
            lines, rest = _split(b"".join(held))
            if dropped:
                line = RawLine(offset, number, dropped + len(lines.pop(0)), None, True)
                yield line
                offset, number, dropped = offset + line.size, number + 1, 0
            yield Run(offset, number, lines)
            offset, number = offset + sum(map(len, lines)), number + len(lines)
            held, held_bytes = [rest], len(rest)
        if dropped or held_bytes > LINE_BYTES_MAX:
            dropped += held_bytes
            held, held_bytes = [], 0
    if held_bytes or dropped:
        yield RawLine(offset, number, dropped + held_bytes, None if dropped else b"".join(held), False)


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines, with their newlines, and what follows the last of them."""
    lines = BytesIO(data).readlines()  # five times as quick as `split`
    return lines, b"" if lines[-1].endswith(b"\n") else lines.pop()


def raw_lines(file: File, start: Place) -> Iterator[RawLine]:
    """Give the lines from a place on, one by one; the last one may lack its newline."""
    for run in runs(file, start):
        if isinstance(run, RawLine):
            yield run
        else:
            yield from run


class Assembler:
    """Makes blocks of lines, one line after the other, or many at once: what comes of it is the same.

    `synced` is the highest place that a line says was safe when the line was written; `place` is where the
    line after the last one begins.
    """

    def __init__(self, name: FileName, created_at: int) -> None:
        self._stem = name.stem
        minted_at = name.minted_at()
        self._created_at = created_at if minted_at is None else minted_at
        self._gathering: Gathering | None = None
        self._first = self._end = Place()
        self._bad = 0
        self.synced = 0
        self.place = Place()

    @property
    def at_rest(self) -> bool:
        """Whether reading can go on from here without knowing what came before."""
        return self._gathering is None and not self._bad

    @property
    def missing(self) -> int:
        """How many lines the block lacks that is being read."""
        return 0 if self._gathering is None else self._gathering.missing

    def feed_run(self, run: Run) -> Iterator[list[Found | Fault]]:
        """Take lines, and give what is complete with each step: a line, or many that are sound."""
        sound = decode_ours(run.lines)
        if sound is None:
            for line in run:
                yield list(self.feed(line))
            return
        offsets = list(accumulate(map(len, run.lines), initial=run.offset))
        at = 0
        while at < len(sound):
            start = Place(offsets[at], run.number + at)
            if count := self._take_run(sound, at, start):
                at += count
                self.place = self._end = Place(offsets[at], run.number + at)
                yield list(self._complete())
            else:
                data = run.lines[at]
                yield list(self.feed(RawLine(start.offset, start.line, len(data), data[:-1], True)))
                at += 1

    def feed(self, line: RawLine) -> Iterator[Found | Fault]:
        """Take a line, and give what is complete with it."""
        self.place = Place(line.offset + line.size, line.number + 1)
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
            yield self._result(gathering)
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
            fresh = Gathering(decoded, torn=torn)
            yield from self.end()
            gathering = self._gathering = fresh
            self._first = Place(line.offset, line.number)
        else:
            gathering.torn |= decoded.position > gathering.next and not self._bad
        self._bad = 0
        gathering.add(decoded)
        self._end = self.place
        yield from self._complete()

    def _take_run(self, lines: list[Line], at: int, start: Place) -> int:
        """Take the lines from `at` on that a block goes on or begins with; 0 where it isn't so plain."""
        gathering = Gathering.begin(lines[at]) if self._gathering is None else self._gathering
        if self._bad or gathering is None:
            return 0
        count = gathering.add_run(lines, at)
        if count:
            self.synced = max(self.synced, *[line.synced for line in lines[at : at + count]])
            self._first = start if self._gathering is None else self._first
            self._gathering = gathering
        return count

    def _complete(self) -> Iterator[Found | Fault]:
        """Give the block if no line of it is to come."""
        gathering = self._gathering
        if gathering is not None and not gathering.missing:
            self._gathering = None
            yield self._result(gathering)

    def _result(self, gathering: Gathering) -> Found | Fault:
        first, end = self._first, self._end
        stretch = Stretch(first.offset, end.offset - first.offset, first.line, end.line - first.line)
        if gathering.is_too_large:
            return Fault("damaged", f"block {gathering.name} is larger than any may be", stretch)
        if gathering.torn:
            reason = f"block {gathering.name} has {len(gathering)} of its {gathering.size} lines"
            return Fault("torn", reason, stretch)
        block = gathering.block()
        return Found(SpooledBlock(gathering.queue, block, gathering.size - len(block)), stretch)


def _stretch(line: RawLine) -> Stretch:
    return Stretch(line.offset, line.size, line.number)


def walk(file: File, assembler: Assembler) -> Iterator[Found | Fault]:
    """Go through a whole file."""
    for items in _steps(file, Place(), assembler, lambda: _RUN_LINES):
        yield from items
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

    def keep(items: Iterable[Found | Fault]) -> None:
        nonlocal events
        for item in items:
            if isinstance(item, Fault):
                faults.append(item)
            else:
                found.append(item)
                events += len(item.entry)

    # No line is looked at that this page may not need.
    for items in _steps(file, start, assembler, lambda: assembler.missing or max(1, events_max - events)):
        keep(items)
        read = assembler.place.offset - start.offset
        much = events >= events_max or len(faults) >= events_max or read >= bytes_max
        if much and assembler.at_rest:
            return Page(found, faults, assembler.place, events)
    keep(assembler.end())
    return Page(found, faults, None, events)


def _steps(
    file: File, start: Place, assembler: Assembler, count: Callable[[], int]
) -> Iterator[list[Found | Fault]]:
    """Feed the lines from a place on, up to `count()` at once, and give what comes of each step."""
    for run in runs(file, start):
        if isinstance(run, RawLine):
            yield list(assembler.feed(run))
            continue
        rest = run
        while rest.lines:
            some, rest = rest.cut(count())
            yield from assembler.feed_run(some)
