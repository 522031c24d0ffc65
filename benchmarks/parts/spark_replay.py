"""Bulk replay: events in many spool files, as dead servers leave them, into PostgreSQL, end to end.

They have ids. Every hundredth push was sent again, under another block id, as by a client that got no answer;
some blocks are in two files, and a few lines are damaged. Time is counted from taking the folders to letting
go of them; only what went in counts.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.parts.spark_session import running
from benchmarks.payloads import batches, known_id
from benchmarks.verdict import Figures
from forebay import open_log
from forebay.api.queen.spooled import creation_by
from forebay.model import Block, Message, format_id, mint
from forebay.spool.lines import SpooledBlock, encode_entry

FILES: Final = 200
SERVERS: Final = 10
BLOCK: Final = 100
"""Messages of a block."""
AGAIN: Final = 100
"""Of so many blocks, the last repeats the ids of the one before it."""
PARTITIONS: Final = 1_000
DAMAGED: Final = 10
"""Files with a line that is nothing."""


async def run(bench: Bench) -> Figures:
    """Replay once: the second time there would be nothing to do."""
    count = bench.pace.spark_events
    with bench.part("replay", 2), bench.folder() as folder:
        with bench.note(f"{count:,} events in {FILES} files"):
            repeated = await asyncio.to_thread(write_files, folder, count)
        async with bench.database() as dsn:
            with bench.note("replaying"):
                return await asyncio.to_thread(_replay, dsn, folder, count - repeated)


def write_files(folder: Path, count: int) -> int:
    """Files of several servers, as the spool writes them; how many of the events should not go in.

    The last block of a file is also the first one of the next, besides so many events.
    """
    payloads = [payload for batch in batches() for payload in batch.payloads]
    number = repeated = 0
    last = b""
    for file in range(FILES):
        home = folder / f"server-{file % SERVERS}"
        home.mkdir(exist_ok=True)
        with (home / f"failover_{format_id(mint())}.buf").open("wb") as out:
            out.write(last)
            for _ in range(count // FILES // BLOCK):
                places = [_place(n) for n in range(number, number + BLOCK)]
                repeated += sum(place != n for n, place in enumerate(places, number))
                messages = [
                    Message(payloads[n % len(payloads)], f"customer-{place % PARTITIONS}", known_id(place))
                    for n, place in enumerate(places, number)
                ]
                last = encode_entry(SpooledBlock("orders", Block.of(messages)))
                out.write(last)
                number += BLOCK
            if file % (FILES // DAMAGED) == 0:
                out.write(b"nothing that was ever a line\n")
    return repeated


def _place(number: int) -> int:
    """Whose id and partition an event has: its own, or those of one that came before."""
    return number - BLOCK if number // BLOCK % AGAIN == AGAIN - 1 else number


def _replay(dsn: str, folder: Path, expected: int) -> Figures:
    from forebay.spark.replay.replaying import BulkReplay, Tools, Wishes  # noqa: PLC0415 - only with spark

    servers = [str(path) for path in sorted(folder.glob("server-*"))]
    with running() as spark:
        spark.sparkContext.parallelize(range(4), 4).count()  # the session's own start is measured elsewhere
        began = time.perf_counter()
        wishes = Wishes(aside=str(folder / "aside"))
        bulk = BulkReplay(spark, Tools(open_log, dsn, creation_by), wishes)
        bulk.prepare(servers)
        done = bulk.run()
        bulk.finish(complete=True)
        seconds = time.perf_counter() - began
    assert (done.messages, done.damaged) == (expected, DAMAGED), done
    size = sum(path.stat().st_size for path in folder.rglob("*.buf"))
    return {
        "events": float(done.events), "written": float(done.messages), "files": float(done.files),
        "seconds": seconds, "events_per_second": done.messages / seconds,
        "mb_per_second": size / seconds / 1e6,
    }  # fmt: skip
