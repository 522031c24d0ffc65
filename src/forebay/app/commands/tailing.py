"""`forebay tail`: what is in a queue's log, from a place on, whoever has worked it."""

import argparse
import asyncio
from typing import Final

from forebay.app.commands.arguments import count, place
from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import message_fields, message_line, print_json, print_line, warn
from forebay.log.values import Position, QueueStats, Start, StoredBlock
from forebay.model import Corrupt, sequence_of
from forebay.store.seam import Store

__all__ = ["declare_tail", "find_time", "tail"]

PAGE_MESSAGES: Final = 1_000
PAGE_BYTES: Final = 8 << 20
FOLLOW_SECONDS: Final = 0.5
"""How often a queue is looked at for more."""


def declare_tail(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay tail`."""
    declare_store(parser)
    parser.add_argument("queue", metavar="QUEUE", help="the queue to read")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from", dest="start", metavar="PLACE", type=place,
        help="earliest, latest, a time as 2026-01-31T12:00:00Z, or how long ago as 10m",
    )  # fmt: skip
    where.add_argument(
        "-n", "--count", metavar="N", type=count, default=10, help="the last so many (default: %(default)s)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes in")


@on_store
async def tail(store: Store, arguments: argparse.Namespace) -> int:
    """Print messages by their place in the log; exit status 1 when some couldn't be read."""
    queue: str = arguments.queue
    books = await _books(store, queue)
    first = await _first(store, queue, books, arguments.start, arguments.count)
    damaged = False
    while True:
        blocks = await store.read(queue, first, messages_max=PAGE_MESSAGES, bytes_max=PAGE_BYTES)
        for block in blocks:
            damaged |= not _print_block(block, queue, first, as_json=arguments.json)
            first = max(first, sequence_of(block.last) + 1)
        if not blocks:
            if not arguments.follow:
                return 1 if damaged else 0
            await asyncio.sleep(FOLLOW_SECONDS)


async def _books(store: Store, queue: str) -> QueueStats:
    (found,) = (await store.ledger(queue=queue)).queues
    return found


async def _first(store: Store, queue: str, books: QueueStats, start: Start | None, last: int) -> int:
    """The sequence number to begin with."""
    if start is None:
        return max(books.floor, books.next - last)
    if start == "latest":
        return books.next
    if isinstance(start, Position):
        return max(books.floor, start.sequence)
    return books.floor if start == "earliest" else await find_time(store, queue, books, start)


async def find_time(store: Store, queue: str, books: QueueStats, at: int) -> int:
    """The first sequence number that was appended at a time or later: by halves, a block read for each."""
    low, high = books.floor, books.next
    while low < high:
        middle = (low + high) // 2
        blocks = await store.read(queue, middle, messages_max=1, bytes_max=1)
        if not blocks:  # dropped by retention meanwhile, with all before it
            return high
        if blocks[0].appended_at >= at:
            high = max(low, min(middle, sequence_of(blocks[0].first)))
        else:
            low = sequence_of(blocks[0].last) + 1
    return low


def _print_block(block: StoredBlock, queue: str, first: int, *, as_json: bool) -> bool:
    """Print the messages of a block from a sequence number on; False if it can't be read."""
    try:
        messages = list(block.decode(queue))
    except Corrupt as error:
        warn(f"forebay: {error}")
        return False
    for id, message in enumerate(messages, block.first):
        if sequence_of(id) < first:
            continue
        if as_json:
            print_json({"id": str(id), "appended_at": block.appended_at, **message_fields(message)})
        else:
            print_line(message_line(id, block.appended_at, message))
    return True
