"""What the flows of the tests call; Spark's own processes import it."""

import importlib
import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from forebay.model import Unavailable


def parse(row: dict[str, Any]) -> dict[str, Any] | None:
    """Fails on what is no JSON; leaves out what is void."""
    order = json.loads(row["value"])
    if order.get("void"):
        return None
    return {**row, "value": {"order": order["order"], "total": order["price"] * order["count"]}}


def strict(row: dict[str, Any]) -> dict[str, Any] | None:
    """Likewise, and fails on what can't be multiplied."""
    order = json.loads(row["value"])
    if order.get("void"):
        return None
    return {**row, "value": {"total": order["price"] / 1 * float(order["count"] + 0)}}


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Two rows of one, unless it is bad."""
    if row["value"] == b"bad":
        raise ValueError("it is bad")
    return [{**row, "value": row["value"] + b"-a"}, {**row, "value": row["value"] + b"-b"}]


def typed(row: dict[str, Any]) -> dict[str, Any]:
    """Add a column."""
    return {"number": json.loads(row["value"])["order"]}


def enrich(frame: DataFrame) -> DataFrame:
    """Say in the value where it has been."""
    return frame.withColumn("value", F.concat(F.col("value"), F.lit("!").cast("binary")))


def away(frame: DataFrame) -> DataFrame:
    """Ask a log, for every row, that isn't there."""

    def look_up(_: Any) -> bytes:
        raise Unavailable("the log is away")

    look_up.__annotations__.clear()  # Spark takes them for those of another kind of function
    return frame.withColumn("value", F.udf(look_up, "binary")("value"))


def absent(_: dict[str, Any]) -> dict[str, Any]:
    """Need what isn't installed."""
    return importlib.import_module("no_such_module").made()  # type: ignore[no-any-return]  # it isn't there


_polled = iter(range(7, 100))


def poll() -> list[dict[str, Any]]:
    """What a timed flow brings."""
    return [{"value": "one", "key": f"a-{next(_polled)}"}, {"value": {"two": 2}}]


def poll_left() -> list[dict[str, Any]]:
    """What one of two timed flows brings."""
    return [{"value": f"left-{number}"} for number in range(3)]


def poll_right() -> list[dict[str, Any]]:
    """What the other one brings."""
    return [{"value": f"right-{number}"} for number in range(3)]


def half(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on every other row of a poll."""
    if row["value"].endswith(b"1"):
        raise ValueError(f"{row['value'].decode()} is odd")
    return row


_calls = iter(range(100))


def poll_nothing() -> list[dict[str, Any]]:
    """Fails whenever it is called."""
    raise OSError(f"nobody answers call {next(_calls)}")
