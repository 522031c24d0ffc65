"""`forebay push`: lines, objects or a whole file into a queue, in blocks.

Invariants: memory holds one block and one chunk of input, whatever the input's size; blocks go in one after
another, so that the order of lines is the order of messages; a block keeps its id over all attempts to write
it, also by way of a spool, so that none is written twice; however it ends, it says how many messages are in.
"""

import argparse
import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn

from forebay.app.commands.arguments import count, duration, pair
from forebay.app.commands.lines import Input, Lines, parse_object
from forebay.app.commands.opened import answers, declare_store, is_served, on_store, shown_url, store_url
from forebay.app.commands.output import print_json, warn
from forebay.failover.status import SpoolStatus
from forebay.model import ForebayError, Limits, Message, Rejected, TooLarge, Unavailable, UnknownQueue, mint
from forebay.model.quantity import format_bytes
from forebay.store.seam import Store

__all__ = ["declare_push", "push"]

STDIN: Final = 0
BATCH_BYTES: Final = 8 << 20
"""Bytes of a block at most: far enough from what a log takes, whatever is around it."""
BYTES_PER_CHARACTER: Final = 4
LINGER_SECONDS: Final = 0.2
"""How long lines wait for more of them, when the input is slow."""
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
LOOK_SECONDS: Final = 2.0
"""How long a server that may be away is asked about a queue."""


def declare_push(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay push`."""
    declare_store(parser)
    parser.add_argument("queue", metavar="QUEUE", help="made if it isn't there, unless the server forbids it")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="- for standard input, the default"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--lines", action="store_true", help="every line is a payload, as it is; the default")
    form.add_argument(
        "--objects", action="store_true",
        help="every line is an object: payload, partition, transaction_id, headers, encoding",
    )  # fmt: skip
    form.add_argument("--raw", action="store_true", help="the whole input is one payload")
    parser.add_argument(
        "--partition", metavar="P", default="", help="the partition, where an object names none"
    )
    parser.add_argument(
        "--header", metavar="NAME=VALUE", type=pair, action="append", help="a header; may be repeated"
    )
    parser.add_argument(
        "--batch", metavar="N", type=count, default=1_000, help="messages in a block (default: %(default)s)"
    )
    parser.add_argument("--delay", metavar="TIME", type=duration, help="hand out after so long, as 5s")
    parser.add_argument(
        "--retry-for", metavar="TIME", type=duration, default=60.0,
        help="how long to try again while the store is away, in seconds or as 5m (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--spool", metavar="DIR",
        help="a folder that keeps what the server can't take now, and from which it is delivered later",
    )  # fmt: skip
    parser.add_argument(
        "--wait", metavar="TIME", type=duration, default=5.0,
        help="how long to wait at the end for what was spooled to be delivered (default: %(default)s)",
    )  # fmt: skip


@on_store
async def push(store: Store, arguments: argparse.Namespace) -> int:
    """Push what comes in; say what went in, also when it ends early."""
    limit = Limits().block_messages_max
    if arguments.batch > limit:
        raise TooLarge(f"--batch is {arguments.batch:,}", hint=f"a block holds {limit:,} messages at most")
    descriptor = _open(arguments.file)
    pushed = Pushed(arguments.queue, folder=arguments.spool)
    try:
        with _bar(pushed, descriptor):
            await _push_all(store, arguments, pushed, descriptor)
    except (ForebayError, asyncio.CancelledError):
        warn(f"{pushed.sentence()}; the next is line {pushed.lines + 1:,}")
        raise
    finally:
        if descriptor != STDIN:
            os.close(descriptor)
    status = None if arguments.spool is None else await _deliver(store, arguments)
    if arguments.json:
        print_json(pushed.fields() | ({} if status is None else _spool_fields(status)))
    else:
        warn("\n".join([pushed.sentence(), *([] if status is None else _spool_lines(status, arguments))]))
    return 0 if status is None or not status.failed else 1


async def _deliver(store: Store, arguments: argparse.Namespace) -> SpoolStatus:
    """Wait a little for the spool to become empty, if the server is there; what is left in it."""
    from forebay.client import Client  # noqa: PLC0415 - who works on a file needs none of it

    assert isinstance(store, Client)
    if await answers(store_url(arguments)):
        await store.drain_spool(arguments.wait)
    status = await store.count_spool()
    assert status is not None
    return status


def _spool_fields(status: SpoolStatus) -> dict[str, object]:
    return {"waiting": status.pending, "refused": status.failed}


def _spool_lines(status: SpoolStatus, arguments: argparse.Namespace) -> Iterator[str]:
    """What there is to be said of what is left in a spool."""
    folder = arguments.spool
    if status.pending:
        yield (
            f"{status.pending:,} wait in {folder} for the server: the next `forebay push --spool {folder}`"
            f" delivers them, or `forebay spool replay {folder} --store {shown_url(store_url(arguments))}`"
        )
    if status.failed:
        yield f"{status.failed:,} were refused, and are kept in {folder}/failed, each with its reason"


@contextmanager
def _bar(pushed: "Pushed", descriptor: int) -> Iterator[None]:
    """A progress bar on standard error, if that is a terminal: by bytes, where their number is known."""
    if not sys.stderr.isatty():
        yield
        return
    status = os.fstat(descriptor)
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"), TimeLeftColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True)) as progress:
        pushed.progress = progress
        pushed.bar = progress.add_task(pushed.queue, total=total, rate="")
        yield


@dataclass(slots=True)
class Pushed:
    """What went in so far. `lines` is the number of the last line up to which all of it is."""

    queue: str
    messages: int = 0
    lines: int = 0
    spooled: int = 0
    """Of the messages: those that were kept until they reach the log, and have no ids yet."""
    folder: str | None = None
    """Where they were, if not with the server."""
    first: int | None = None
    last: int | None = None
    bytes_read: int = 0
    began: float = field(default_factory=time.monotonic)
    progress: Progress | None = None
    bar: TaskID | None = None

    def add(self, count: int, ids: list[int]) -> None:
        """Count a block that is in."""
        self.messages += count
        self.spooled += count - len(ids)
        if ids:
            self.first = ids[0] if self.first is None else self.first
            self.last = ids[-1]
        if self.progress is not None and self.bar is not None:
            rate = f"{self.messages:,} messages, {self.per_second():,.0f}/s"
            self.progress.update(self.bar, completed=self.bytes_read, rate=rate)

    def per_second(self) -> float:
        """Messages per second since the beginning."""
        return self.messages / max(time.monotonic() - self.began, 1e-6)

    def fields(self) -> dict[str, object]:
        """For programs."""
        seconds = time.monotonic() - self.began
        return {
            "queue": self.queue, "pushed": self.messages, "spooled": self.spooled,
            "first": None if self.first is None else str(self.first),
            "last": None if self.last is None else str(self.last),
            "seconds": round(seconds, 3),
        }  # fmt: skip

    def sentence(self) -> str:
        """For people."""
        noun = "message is" if self.messages == 1 else "messages are"
        ids = f", ids {self.first} to {self.last}" if self.first != self.last else ""
        ids = f", id {self.first}" if self.first is not None and self.first == self.last else ids
        spool = "the server's spool" if self.folder is None else f"or by way of {self.folder}"
        away = f", {self.spooled:,} of them in {spool}" if self.spooled else ""
        return f"{self.messages:,} {noun} in {self.queue} ({self.per_second():,.0f}/s{ids}{away})"


async def _push_all(store: Store, arguments: argparse.Namespace, pushed: Pushed, descriptor: int) -> None:
    writer = _Writer(store, arguments)
    seconds = None if arguments.spool is None else LOOK_SECONDS
    apart = arguments.objects and await _is_ordered(store, arguments.queue, seconds)
    async for batch, line in _batches(arguments, pushed, descriptor):
        try:
            for part in _by_partition(batch) if apart else [batch]:
                pushed.add(len(part), await writer.write(part))
            pushed.lines = line
        except Rejected as error:
            span = f"lines {pushed.lines + 1} to {line}: " if not arguments.raw else ""
            raise type(error)(f"{span}{error.message}", hint=error.hint) from error


async def _is_ordered(store: Store, queue: str, seconds: float | None) -> bool:
    """Whether a block may hold one partition only. A queue that isn't there yet won't be ordered."""
    try:
        async with asyncio.timeout(seconds):
            return (await store.queue(queue)).settings.ordered
    except Rejected:  # or the key isn't for reading: then the server says what it doesn't take
        return False
    except (Unavailable, TimeoutError):
        return True  # what holds one partition is right for any queue


def _by_partition(batch: list[Message]) -> list[list[Message]]:
    found: dict[str, list[Message]] = {}
    for message in batch:
        found.setdefault(message.partition, []).append(message)
    return list(found.values())


class _Writer:
    """Writes blocks, each under one id, until it is in or the time is over."""

    def __init__(self, store: Store, arguments: argparse.Namespace) -> None:
        self._store = store
        self._queue: str = arguments.queue
        self._delay: float | None = arguments.delay
        self._seconds: float = arguments.retry_for
        self._may_create = not is_served(arguments)  # a server decides by itself

    async def write(self, batch: list[Message]) -> list[int]:
        id, deadline, pause = mint(), time.monotonic() + self._seconds, PAUSE_SECONDS
        while True:
            try:
                return await self._store.put_task(self._queue, *batch, delay=self._delay, id=id)
            except UnknownQueue:
                if not self._may_create:
                    raise
                self._may_create = False
                await self._store.create_queue(self._queue)
            except Unavailable as error:
                pause = min(max(pause, error.retry_after_seconds or 0), PAUSE_SECONDS_MAX)
                if time.monotonic() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                pause *= 2


async def _batches(
    arguments: argparse.Namespace, pushed: Pushed, descriptor: int
) -> AsyncIterator[tuple[list[Message], int]]:
    """Messages for one block each, with the number of the last line among them."""
    default = Message(b"", arguments.partition, None, dict(arguments.header or ()) or None)
    source = Input(descriptor)
    if arguments.raw:
        yield [_of_payload(await _whole(source, pushed), default)], 1
        return
    batch, size, last = list[Message](), 0, 0
    async for number, line in _lines(source, pushed):
        if line:
            message = parse_object(number, line, default) if arguments.objects else _of_payload(line, default)
            more = _bytes(message)
            if batch and (len(batch) >= arguments.batch or size + more > BATCH_BYTES):
                yield batch, last
                batch, size = [], 0
            batch.append(message)
            size, last = size + more, number
        elif batch:
            yield batch, last
            batch, size = [], 0
    if batch:
        yield batch, last


def _bytes(message: Message) -> int:
    """What a message may add to a block, or more."""
    headers = sum(len(name) + len(value) for name, value in (message.headers or {}).items())
    names = len(message.partition) + len(message.transaction_id or "")
    return len(message.payload) + BYTES_PER_CHARACTER * (headers + names)


async def _lines(source: Input, pushed: Pushed) -> AsyncIterator[tuple[int, bytes]]:
    """Lines by number; an empty one when the input makes a pause: what is there goes out then."""
    lines, more = Lines(), True
    while more:
        reading = asyncio.ensure_future(source.chunk())
        try:
            done, _ = await asyncio.wait([reading], timeout=LINGER_SECONDS)
            if not done:
                yield lines.number, b""
            chunk = await reading
        finally:
            reading.cancel()
        pushed.bytes_read += len(chunk)
        more = bool(chunk)
        for line in lines.feed(chunk) if more else lines.end():
            yield line


async def _whole(source: Input, pushed: Pushed) -> bytes:
    limit, parts = Limits().message_bytes_max, list[bytes]()
    while chunk := await source.chunk():
        parts.append(chunk)
        pushed.bytes_read += len(chunk)
        if pushed.bytes_read > limit:
            text = f"the input is longer than a message may be, {format_bytes(limit)}"
            raise TooLarge(text, hint="leave --raw out to push its lines, or split it")
    return b"".join(parts)


def _of_payload(payload: bytes, default: Message) -> Message:
    return Message(payload, default.partition, None, default.headers)


def _open(name: str) -> int:
    if name == "-":
        return STDIN
    try:
        return os.open(name, os.O_RDONLY)
    except OSError as error:
        raise Rejected(f"{name} can't be read: {error.strerror}", hint="check the path") from error
