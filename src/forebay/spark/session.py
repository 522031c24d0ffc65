"""The Spark session that Forebay's own programs use: local by default, the same on a cluster.

A program of yours may bring its own session: the sources and sinks need no setting of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from forebay.model import Misconfigured
from forebay.spark.java import java_home

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # The default forks a process for each file of a checkpoint, and doubles the time of a small batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stopTimeout": "10s",
}
"""What makes our sources and sinks faster, and their times UTC; they work in a session without it."""

LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    # A session is up in half the time; what Forebay does is bound by Python and the log.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Besides, where driver and executors are one process on this machine."""


def require_spark(text: str = "this needs Spark") -> None:
    """Raise Misconfigured where the spark extra is not installed; `text` says what needs it."""
    try:
        import pyarrow as pa  # noqa: F401, PLC0415 - absent without the spark extra
        import pyspark  # noqa: F401, PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise Misconfigured(text, hint="pip install 'forebay[spark]'") from error


def session(
    name: str = "forebay", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made on the first call; later calls return it as it is.

    `master` is `local[*,4]` by default: every core, and a task may fail three times, as on a cluster.
    """
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only with the spark extra

    master = master or "local[*,4]"
    _prepare(local=is_local(master))
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (SETTINGS | (LOCAL if is_local(master) else {}) | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def java_gateway() -> JavaGateway:
    """The Java process of this one, without a session; a session that comes later runs in it."""
    require_spark()
    from pyspark import SparkContext  # noqa: PLC0415 - only with the spark extra

    _prepare(local=True)
    SparkContext._ensure_initialized()  # noqa: SLF001 - there is no other way to ask for it
    gateway: JavaGateway = SparkContext._gateway  # noqa: SLF001 - likewise
    return gateway


def end_java(seconds: float = 2.0) -> None:
    """End the Java process of this one, in order if that goes quickly; its own processes end with it."""
    module = sys.modules.get("pyspark")
    process = getattr(getattr(module and module.SparkContext, "_gateway", None), "proc", None)
    if process is None or process.poll() is not None:
        return
    try:
        process.stdin.close()  # by this it knows that it is needed no more
        process.wait(seconds)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()


def is_local(master: str) -> bool:
    """Whether the driver and its executors are one process."""
    return master.partition("[")[0] == "local"


def _prepare(*, local: bool) -> None:
    """Set what Spark reads from the environment as it starts; what is set already stays."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home())
