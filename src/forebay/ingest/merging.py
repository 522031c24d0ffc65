"""Small puts that come together go together: many callers, one block, each gets the ids of its own.

Nobody waits for company: the first put goes at once, and while it is under way the next ones gather.

Invariants: what is gathered goes in the order in which it came, one block of a lane at a time; what is
refused because of one caller's messages is refused to that caller alone; a failure goes to those whose
messages were in the block, and to nobody else; no more than `pending_bytes_max` waits at a time.

In an ordered queue a block may hold one partition only. Who knows that it is one says so (`part`); otherwise
it is learnt from the first block that is refused and whose parts are not. Then each partition has a lane.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Final

from forebay.log.values import Appended
from forebay.model import Message, Rejected, Unavailable, cancel

Written = tuple[bytes, Appended]
"""The id of a block, and where the messages are that somebody had in it."""
Push = Callable[[str, Sequence[Message | bytes]], Awaitable[Written]]
"""Writes messages as one block."""
_Lane = tuple[str, str | None]
"""A queue, or one partition of it."""

SMALL_MESSAGES: Final = 100
SMALL_BYTES: Final = 64 << 10
"""What is larger goes by itself: it gains nothing from company."""
MERGED_MESSAGES: Final = 1_000
MERGED_BYTES: Final = 1 << 20
MANY_PUTS: Final = 8
_APART_MAX: Final = 10_000
_MESSAGE_BYTES: Final = 200
"""What a message takes beside its payload, roughly."""


class _Put:
    """The messages of one caller."""

    __slots__ = ("answer", "messages", "size")

    def __init__(self, messages: Sequence[Message | bytes], size: int) -> None:
        self.messages = messages
        self.size = size
        self.answer: asyncio.Future[Written] = asyncio.get_running_loop().create_future()

    def partition(self) -> str | None:
        """The partition, if all messages have the same."""
        found = {message.partition if isinstance(message, Message) else "" for message in self.messages}
        return found.pop() if len(found) == 1 else None

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy(error))


class Merger:
    """Gathers small puts, by queue."""

    def __init__(self, push: Push, *, pending_bytes_max: int = 64 << 20) -> None:
        self._push = push
        self._pending_bytes_max = pending_bytes_max
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._waiting: dict[_Lane, deque[_Put]] = {}
        self._working: dict[_Lane, asyncio.Task[None]] = {}
        self._apart: set[str] = set()

    @property
    def pending_bytes(self) -> int:
        """What waits or is under way, roughly."""
        return self._pending_bytes

    def takes(self, messages: Sequence[Message | bytes], size: int | None = None) -> bool:
        """Whether a put is small enough to gain from company; whoever knows its size says it."""
        return len(messages) <= SMALL_MESSAGES and (size or size_of(messages)) <= SMALL_BYTES

    def part(self, queue: str) -> None:
        """A queue is known to be ordered: each of its partitions has a lane of its own from now on."""
        if len(self._apart) < _APART_MAX:
            self._apart.add(queue)

    async def put(self, queue: str, messages: Sequence[Message | bytes], size: int | None = None) -> Written:
        """Put messages, maybe together with those of others; where they are."""
        put = _Put(messages, size or size_of(messages))
        while self._pending_bytes and self._pending_bytes + put.size > self._pending_bytes_max:
            self._room.clear()
            await self._room.wait()
        self._pending_bytes += put.size
        try:
            self._line_up(queue, put)
            return await put.answer
        finally:
            self._pending_bytes -= put.size
            self._room.set()

    async def close(self) -> None:
        """End what is under way; whoever waits is told so."""
        await cancel(*self._working.values())

    def _line_up(self, queue: str, put: _Put) -> None:
        lane = (queue, put.partition() if queue in self._apart else None)
        line = self._waiting.get(lane)
        if line is not None:
            line.append(put)
            return
        line = self._waiting[lane] = deque([put])
        self._working[lane] = asyncio.create_task(self._work(lane, line))

    async def _work(self, lane: _Lane, line: deque[_Put]) -> None:
        """Send what has gathered until nothing has."""
        puts: list[_Put] = []
        try:
            while line:
                # Of many, half: while theirs is written, the others get theirs ready.
                pushing = len(line) + len(puts)
                puts = _gathered(line, pushing if pushing < MANY_PUTS else (pushing + 1) // 2)
                await self._send(lane[0], puts)
        except asyncio.CancelledError:
            closed = Unavailable("this was closed before the answer came", hint="open it again, and repeat")
            for put in (*puts, *line):
                put.fail(closed)
            raise
        finally:
            del self._waiting[lane], self._working[lane]

    async def _send(self, queue: str, puts: Sequence[_Put]) -> bool:
        """Send puts together, or else apart; whether all of them are written."""
        puts = [put for put in puts if not put.answer.done()]  # who has left takes along what was not sent
        if not puts:
            return True
        try:
            id, appended = await self._push(queue, [message for put in puts for message in put.messages])
        except Exception as error:  # noqa: BLE001 - it is for those who wait, not for the lane to die of
            if isinstance(error, Rejected) and len(puts) > 1:
                return await self._send_apart(queue, puts)
            for put in puts:
                put.fail(error)
            return False
        _hand_out(id, appended, puts)
        return True

    async def _send_apart(self, queue: str, puts: Sequence[_Put]) -> bool:
        """What was refused together was not written; in parts, only what is to blame is refused."""
        by_partition: dict[str | None, list[_Put]] = {}
        for put in puts:
            by_partition.setdefault(put.partition(), []).append(put)
        if len(by_partition) > 1:
            parts = list(by_partition.values())
        else:
            parts = [list(puts[: len(puts) // 2]), list(puts[len(puts) // 2 :])]
        written = [await self._send(queue, together) for together in parts]
        if len(by_partition) > 1 and all(written):
            self.part(queue)
        return all(written)


def _gathered(line: deque[_Put], most: int) -> list[_Put]:
    """What goes next: up to so many puts, as much as fits in one block, and one put in any case."""
    puts = [line.popleft()]
    count, size = len(puts[0].messages), puts[0].size
    while line and len(puts) < most:
        count, size = count + len(line[0].messages), size + line[0].size
        if count > MERGED_MESSAGES or size > MERGED_BYTES:
            break
        puts.append(line.popleft())
    return puts


def _hand_out(id: bytes, appended: Appended, puts: Sequence[_Put]) -> None:
    """Tell each caller where its own messages are."""
    begin = 0
    for put in puts:
        end = begin + len(put.messages)
        if not put.answer.done():
            put.answer.set_result((id, part_of(appended, begin, end)))
        begin = end


def part_of(appended: Appended, begin: int, end: int) -> Appended:
    """Where the messages from one index up to another of a block are."""
    duplicates = appended.duplicates
    if appended.where != "log":
        return Appended(0, end - begin, where=appended.where)
    if not duplicates:
        return Appended(appended.first + begin, end - begin, {}, appended.known)
    before = sum(index < begin for index in duplicates)
    mine = {index - begin: first for index, first in duplicates.items() if begin <= index < end}
    return Appended(appended.first + begin - before, end - begin - len(mine), mine, appended.known)


def size_of(messages: Sequence[Message | bytes]) -> int:
    """Bytes that messages take, roughly."""
    payloads = sum(len(m.payload if isinstance(m, Message) else m) for m in messages)
    return payloads + _MESSAGE_BYTES * len(messages)
