"""A function of the user's on every row, in the processes of Spark.

Invariants: a row on which the function fails is tried again in place, then noted and left out; it holds up
nobody. A log that is away, or a module that isn't there, is no row's fault. What a function returns is a row,
several or none; columns that it doesn't name stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from forebay.spark.flows.functions import function
from forebay.spark.flows.halving import DEAD_MAX, NOT_OF_ROWS, DeadRow, check_dead

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    Failures = Accumulator[list[DeadRow]]

ERROR_CHARACTERS_MAX: Final = 500

Row = dict[str, Any]


class RowError(ValueError):
    """What a function returned can't be a row."""


class Rowwise:
    """Calls the function at `place` on every row; what fails goes to `failures`."""

    def __init__(self, action: str, place: str, schema: pa.Schema, tries: int, failures: Failures) -> None:
        self._action = action
        self._place = place
        self._schema = schema
        self._tries = tries
        self._failures = failures

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What Spark's `mapInArrow` calls, once for a task."""
        call = function(self._place)
        failed: list[DeadRow] = []
        for batch in batches:
            made = [(row, self._made(call, row, failed)) for row in rows_of(batch)]
            yield self._converted(made, failed)
        self._failures.add(failed)

    def _made(self, call: Callable[[Row], Any], row: Row, failed: list[DeadRow]) -> list[Row]:
        said = ""
        for _ in range(self._tries):
            try:
                return made_of(call(dict(row)), row, self._schema.names)
            except NOT_OF_ROWS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever else it is, the row is given up with it
                said = error_text(error)
        self._give_up(row, said, failed)
        return []

    def _converted(self, made: list[tuple[Row, list[Row]]], failed: list[DeadRow]) -> pa.RecordBatch:
        """Rows as columns; where that fails, those that fit, and the others are given up."""
        try:
            return self._batch([each for _, several in made for each in several])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return self._batch(
                [each for row, several in made for each in self._fitting(row, several, failed)]
            )

    def _fitting(self, row: Row, several: list[Row], failed: list[DeadRow]) -> list[Row]:
        try:
            self._batch(several)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            self._give_up(row, error_text(error), failed)
            return []
        return several

    def _give_up(self, row: Row, said: str, failed: list[DeadRow]) -> None:
        failed.append(DeadRow(row["seq"], self._action, said, self._tries))
        check_dead(len(failed), DEAD_MAX, said)

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch; headers are a dictionary."""
    rows: list[Row] = batch.to_pylist()
    if "headers" in batch.schema.names:
        for row in rows:
            row["headers"] = dict(row["headers"] or ())
    return rows


def made_of(result: Any, row: Mapping[str, Any], names: Iterable[str]) -> list[Row]:
    """What a function made of a row, as rows with all columns. Several get keys of their own."""
    if result is None:
        return []
    many = isinstance(result, list | tuple)
    returned = result if many else [result]
    known = frozenset(names)
    made = [_whole(each, row, known) for each in returned]
    if len(made) > 1 and row.get("key") is not None:
        for index, each in enumerate(made):
            if each["key"] == row["key"]:
                each["key"] = f"{row['key']}-{index}"
    return made


def _whole(given: Any, row: Mapping[str, Any], known: frozenset[str]) -> Row:
    if not isinstance(given, Mapping):
        text = f"a row is {type(given).__name__}, not a dictionary"
        raise RowError(f"{text}; return the row, a list of rows, or None")
    if odd := [name for name in given if name not in known]:
        text = f"there is no column {odd[0]!r}"
        raise RowError(f"{text}; name it in the action's schema, as in schema: {odd[0]} STRING")
    made = {name: given[name] if name in given else row.get(name) for name in known}
    if "value" in made:
        made["value"] = value_of(made["value"])
    if "headers" in made:
        made["headers"] = [(str(name), str(value)) for name, value in (made["headers"] or {}).items()]
    return made


def value_of(value: Any) -> bytes | None:
    """A payload: bytes as they are, text in UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def error_text(error: BaseException) -> str:
    """An error in one line, cut."""
    said = " ".join(str(error).split())
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else text[: ERROR_CHARACTERS_MAX - 3] + "..."
