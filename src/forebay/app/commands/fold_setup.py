"""What `snapshot run` and `snapshot shadow` share: log and checkpoint as Spark's processes see them."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.app.opening import split_warm, sqlite_path
from forebay.app.settings import Settings
from forebay.disk import RealDisk
from forebay.model import Misconfigured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.snapshot.job import FoldJob

__all__ = ["fold_folder", "fold_job", "fold_url", "spark_trouble"]

_MEMORY_MIN = 1 << 30
"""What Java, Python and the fold take together, roughly."""


def fold_url(settings: Settings) -> str:
    """The log, as processes in any folder open it."""
    url = split_warm(settings.store.address)[0]
    if url.startswith("memory:"):
        text = "memory:// is within one process, and the fold runs in another"
        raise Misconfigured(text, hint="use sqlite:///file.db", key="store.url")
    return f"sqlite:///{sqlite_path(url).absolute()}" if url.startswith("sqlite:") else url


@contextmanager
def fold_folder(settings: Settings, name: str) -> Iterator[Path]:
    """The folder of a checkpoint, which no other process uses meanwhile."""
    named = settings.metrics.queue_snapshot.checkpoint
    folder = Path(settings.store.data) / "snapshot" / "fold" if named is None else Path(named)
    lock = RealDisk((folder / name).absolute(), use="checkpoint").lock()
    try:
        yield (folder / name).absolute()
    finally:
        lock.close()


def fold_job(
    spark: "SparkSession", settings: Settings, folder: Path, *, pattern: str, interval: float
) -> "FoldJob":
    """The job; each log and each choice of queues has a checkpoint of its own in the folder."""
    from forebay.spark.snapshot.job import FoldJob  # noqa: PLC0415 - Spark takes its time to load
    from pyspark_forebay import SnapshotSource  # noqa: PLC0415 - likewise

    url = fold_url(settings)
    mark = zlib.crc32(f"{url}\n{pattern}".encode())
    return FoldJob(
        spark,
        SnapshotSource,
        url,
        str(folder / f"{mark:08x}"),
        labels=settings.metrics.queue_snapshot.labels,
        pattern=pattern,
        interval_seconds=interval,
    )


def spark_trouble() -> str | None:
    """Why the fold can't run here, if it can't: no Spark, no Java, or too little memory."""
    from forebay.spark.java import java_home  # noqa: PLC0415 - only where it is asked for
    from forebay.spark.session import require_spark  # noqa: PLC0415 - likewise

    try:
        require_spark("there is no Spark")
        java_home()
    except Misconfigured as error:
        return f"{error.message}: {error.hint}" if error.hint else error.message
    free = _free_bytes()
    if free is not None and free < _MEMORY_MIN:
        return f"only {free >> 20} MiB of memory are free, and it takes {_MEMORY_MIN >> 20}"
    return None


def _free_bytes() -> int | None:
    """Memory that can be had; None where the system doesn't say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) << 10 if found else None
