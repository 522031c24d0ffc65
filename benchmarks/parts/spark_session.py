"""The Spark session of a benchmark, and PostgreSQL's JDBC driver for what we are compared with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR: Final = Path(os.environ.get("POSTGRES_JDBC_JAR", "/usr/share/java/postgresql.jar"))


@contextmanager
def running() -> "Iterator[SparkSession]":
    """Give the session; what it has opened is closed at the end, so that databases can be dropped."""
    from forebay.spark.logs import close_all  # noqa: PLC0415 - only with the spark extra
    from forebay.spark.session import session  # noqa: PLC0415 - likewise

    settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    if JAR.exists():
        settings["spark.jars"] = str(JAR)
    spark = session("bench", settings=settings)
    try:
        yield spark
    finally:
        close_all()
        spark.stop()


def jdbc_options(dsn: str) -> dict[str, str]:
    """How Spark's own source and sink reach a database."""
    parts = urlsplit(dsn)
    return {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true",
        "user": parts.username or "",
        "driver": "org.postgresql.Driver",
    }
