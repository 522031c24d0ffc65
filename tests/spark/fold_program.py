"""A program that folds until it is killed: `python -m tests.spark.fold_program URL CHECKPOINT`.

It says the number of each round as soon as that has its series.
"""

import sys

from forebay.observe.labels import LabelSettings
from forebay.spark.session import session
from forebay.spark.snapshot.job import FoldJob
from pyspark_forebay import SnapshotSource


def main(url: str, checkpoint: str) -> None:
    """Fold, round after round."""
    spark = session("fold", master="local[2,2]", settings={"spark.log.level": "OFF"})
    job = FoldJob(spark, SnapshotSource, url, checkpoint, labels=LabelSettings())
    job.start()
    number = -1
    while True:
        number = job.after(number, 300.0).number
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
