"""Spool folders for the tests of bulk replay, and how they are replayed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.api.queen.spooled import creation_by
from forebay.app.opening import open_log
from forebay.model import Block, Message, format_id, mint
from forebay.spark.replay.replaying import BulkReplay, Summary, Tools, Wishes
from forebay.spool.lines import SpooledBlock, encode_entry
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(folder: Path, *blocks: tuple[str, Block], bad: bytes = b"") -> Path:
    """A finished file, younger than all before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"failover_{format_id(mint())}.buf"
    path.write_bytes(b"".join(encode_entry(SpooledBlock(queue, block)) for queue, block in blocks) + bad)
    return path


def block(first: int, count: int, *, partition: str = "p") -> Block:
    """Messages whose payloads and ids are consecutive numbers."""
    return Block.of([Message(b"%d" % n, partition, f"t{n}") for n in range(first, first + count)])


def replay(spark: "SparkSession", shelf: Shelf, folders: Sequence[Path], **wishes: Any) -> Summary:
    """Replay folders, each file by a task of its own."""
    wanted = Wishes(group_bytes=1, **wishes)
    bulk = BulkReplay(spark, Tools(open_log, shelf.url, creation_by), wanted)
    try:
        bulk.prepare([str(folder) for folder in folders])
        bulk.run()
    except BaseException:
        bulk.finish(complete=False)
        raise
    bulk.finish(complete=True)
    return bulk.summary


def payloads(shelf: Shelf, name: str = "q") -> list[int]:
    """What a queue has, as numbers."""
    blocks = shelf(shelf.log.read(shelf.queue(name), messages=100_000))
    return [int(message.payload) for block in blocks for message in block.decode()]
