"""A Spark driver on a cluster: what is in the queue `in` goes to the queue `out`, and then it ends.

python -m tests.spark.cluster_driver URL MASTER CHECKPOINT
"""

import os
import sys
from pathlib import Path

from pyspark.sql import functions as f

from forebay.spark.session import session
from tests.servers.spark import QUICK_START


def main() -> None:
    """Copy what there is; the headers say in which folder, an executor's own, a message was worked on."""
    url, master, checkpoint = sys.argv[1:]
    root = Path(__file__).parents[2]
    settings = {
        "spark.log.level": "ERROR",
        "spark.executorEnv.PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are there before a task is
    }
    spark = session("cluster", master=master, settings=settings)
    told = {
        "url": url,
        "queue": "in",
        "groupId": "spark",
        "startingOffsets": "earliest",
        "minPartitions": "4",
    }
    rows = spark.readStream.format("forebay").options(**told).load()
    done = rows.select(
        f.concat(f.lit("did "), f.decode("value", "utf-8")).alias("value"), "partition",
        f.create_map(f.lit("at"), f.udf(lambda _: str(Path.cwd()))("value")).alias("headers"),
    )  # fmt: skip
    writing = done.writeStream.format("forebay").options(url=url, queue="out", checkpointLocation=checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
