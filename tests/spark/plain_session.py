"""A program with a session of its own, as anybody makes one: no setting, and none of our modules.

python -m tests.spark.plain_session URL CHECKPOINT; prints counts of what it read.
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Read a queue whole, filtered and whole again; write it to another one; read that as a stream."""
    url, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    orders = spark.read.format("forebay").options(url=url, queue="orders").load()
    counts = [orders.count(), orders.where("seq <= 10").count(), orders.count()]
    orders.select("value").write.format("forebay").options(url=url, queue="copied").mode("append").save()
    copied = spark.readStream.format("forebay").options(url=url, queue="copied", startingOffsets="earliest")
    batches = copied.load().writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    batches.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    print(*counts)  # noqa: T201 - its answer
    spark.stop()


if __name__ == "__main__":
    main()
