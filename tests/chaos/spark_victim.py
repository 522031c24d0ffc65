"""A Spark driver that is killed: it copies the queue `in` to the queue `out` for as long as it lives.

python -m tests.chaos.spark_victim URL MASTER CHECKPOINT
"""

import sys
from pathlib import Path
from typing import Final

from forebay.spark.session import session

MARK: Final = "did "
"""What it puts before each payload."""
_ROWS: Final = "400"


def main() -> None:
    """Run until the end, whatever that is."""
    url, master, checkpoint = sys.argv[1:]
    path = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]
    settings = {
        "spark.log.level": "ERROR",
        "spark.executorEnv.PYTHONPATH": ":".join(path),
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
    }
    spark = session("victim", master=master, settings=settings)
    told = {"url": url, "queue": "in", "groupId": "spark", "startingOffsets": "earliest"}
    told |= {"maxOffsetsPerTrigger": _ROWS, "minPartitions": "2"}
    rows = spark.readStream.format("forebay").options(**told).load()
    done = rows.selectExpr(f"concat('{MARK}', decode(value, 'utf-8')) AS value", "partition")
    writing = done.writeStream.format("forebay").options(url=url, queue="out", checkpointLocation=checkpoint)
    writing.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main()
