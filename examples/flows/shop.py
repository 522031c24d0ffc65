"""What the flows of this example call. Spark's processes import it: let it do nothing but define."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse(row: dict[str, Any]) -> dict[str, Any] | None:
    """The columns of an order; None leaves out what is only a test. What raises is a dead letter."""
    order = json.loads(row["value"])
    if order.get("test"):
        return None
    return {"customer": order["customer"], "price": float(order["price"]), "count": int(order["count"])}


def by_day(orders: "DataFrame") -> "DataFrame":
    """Add the day, by which files are put into folders."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it; only with Spark

    return orders.withColumn("value", F.col("value").cast("string")).withColumn(
        "day", F.to_date("created_at")
    )
