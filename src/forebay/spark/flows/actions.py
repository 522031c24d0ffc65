"""The actions of a flow on a batch: one DataFrame becomes another, nothing is computed yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from forebay.model import ForebayError, Misconfigured
from forebay.spark.columns import HEADERS, MESSAGE
from forebay.spark.flows.blame import ActionRaised
from forebay.spark.flows.functions import function
from forebay.spark.flows.halving import DeadRow
from forebay.spark.flows.rowwise import Rowwise
from forebay.spark.flows.values import Action, FlowSpec

if TYPE_CHECKING:
    from forebay.spark.flows.rowwise import Failures

INPUT: Final = "input"
"""What SQL calls the rows that it gets."""
_TAKEN: Final = ("partition", "key", "value", "headers", "start_time")


class DeadRows(AccumulatorParam[list[DeadRow]]):
    """Rows that failed, from all tasks of a job that went well."""

    def zero(self, value: list[DeadRow]) -> list[DeadRow]:  # noqa: ARG002 - Spark's
        """Begin with none."""
        return []

    def addInPlace(self, value1: list[DeadRow], value2: list[DeadRow]) -> list[DeadRow]:
        """Put them together."""
        return [*value1, *value2]


def apply(frame: DataFrame, actions: Sequence[Action], tries: int, failures: Failures) -> DataFrame:
    """The batch after these actions."""
    for action in actions:
        frame = _one(frame, action, tries, failures)
    return frame


def _one(frame: DataFrame, action: Action, tries: int, failures: Failures) -> DataFrame:
    if action.kind == "rows":
        schema = _row_schema(frame, action)
        call = Rowwise(action.name, action.text, to_arrow_schema(schema, timezone="UTC"), tries, failures)
        return frame.mapInArrow(call, schema)
    if action.kind == "sql":
        frame.createOrReplaceTempView(INPUT)  # of this flow's own session: no other flow sees it
        return frame.sparkSession.sql(action.text)
    try:
        made = function(action.text)(frame)
    except ForebayError:
        raise
    except Exception as error:
        raise ActionRaised(error) from error
    if not isinstance(made, DataFrame):
        text = f"action {action.name!r}: {action.text} returned {type(made).__name__}, not a DataFrame"
        raise Misconfigured(text, hint="return what it made of the DataFrame that it was given")
    return made


def _row_schema(frame: DataFrame, action: Action) -> StructType:
    """The columns of what a function of rows returns: those of a message, and those that it adds."""
    if "seq" not in frame.columns:
        text = f"action {action.name!r} works row by row, and its rows have lost their number"
        raise Misconfigured(text, hint="put it before the SQL, or let that select seq, too")
    if action.schema is None:
        return frame.schema
    added = cast("StructType", StructType.fromDDL(action.schema))
    ours = [field for field in (*MESSAGE.fields, HEADERS) if field.name in frame.columns]
    return StructType([*(field for field in ours if field.name not in added.names), *added.fields])


def messages(frame: DataFrame, flow: FlowSpec) -> DataFrame:
    """What a queue takes of a DataFrame, with the labels of the flow; other columns are left out."""
    if "value" not in frame.columns:
        what = f"the action {flow.last_action!r}" if flow.actions else "the source"
        text = f"flow {flow.name!r}: {what} gives no column `value`, and a message is one"
        raise Misconfigured(text, hint="add it: to_json(struct(...)) AS value")
    kept = [F.col(name) for name in _TAKEN if name in frame.columns and name != "headers"]
    return frame.select(*kept, _labelled(frame, flow).alias("headers"))


def _labelled(frame: DataFrame, flow: FlowSpec) -> Column:
    labels = F.create_map(*(F.lit(text) for pair in flow.labels.items() for text in pair))
    if "headers" not in frame.columns:
        return labels
    names = ("flow", "flow_type", "action")
    own = F.map_filter(F.col("headers"), lambda name, _: ~name.isin(*names))
    return F.when(F.col("headers").isNull(), labels).otherwise(F.map_concat(own, labels))
