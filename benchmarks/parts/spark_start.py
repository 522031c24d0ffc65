"""How long it takes from nothing to the first row: a session in a process of its own, and one query."""

import asyncio
import subprocess
import sys
import time
from statistics import median
from typing import Final

from benchmarks.bench import Bench
from benchmarks.verdict import Figures
from forebay import Append, Message, open_log

AIM_SECONDS: Final = 6.0
PROGRAM: Final = """
import sys
from forebay.spark.session import session
spark = session(settings={"spark.log.level": "ERROR"})
row = spark.read.format("forebay").option("url", sys.argv[1]).option("queue", "q").load().first()
print(row.seq, flush=True)
"""


async def run(bench: Bench) -> Figures:
    """Measure as often as there are rounds."""
    seconds = []
    with bench.part("start", bench.pace.rounds), bench.folder() as folder:
        url = f"sqlite:///{folder / 'log.db'}"
        async with open_log(url) as log:
            queue = await log.create_queue("q")
            await log.commit([Append.of(queue, [Message(b"1")])])
        for number in range(bench.pace.rounds):
            with bench.note(f"round {number}"):
                seconds.append(await asyncio.to_thread(_first_row, url))
    return {
        "first_row_seconds": median(seconds), "each": seconds,
        "aim_seconds": AIM_SECONDS, "aim_met": median(seconds) < AIM_SECONDS,
    }  # fmt: skip


def _first_row(url: str) -> float:
    """From the start of the process until it says the row. It has ended before the next one is started."""
    command = [sys.executable, "-c", PROGRAM, url]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - ourselves
        assert process.stdout is not None
        row = process.stdout.readline()
        took = time.perf_counter() - began
    assert row == b"1\n", "there was no row"
    return took
