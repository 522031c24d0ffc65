"""Filters that Spark hands down: those that narrow what is fetched, and those that are left to it.

Invariant: a filter that is taken is applied to every row, exactly as Spark would.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from forebay.model import SEQUENCE_MAX, TIME_MAX, from_datetime
from forebay.spark.arrow import Piece, partitions

_NEVER_NULL: Final = frozenset({"queue", "partition", "seq", "value", "created_at"})


class Wanted(msgspec.Struct):
    """What is left of a queue by the filters that were taken. Ends are not included."""

    queues: frozenset[str] | None = None
    partitions: frozenset[str] | None = None
    prefixes: list[str] = []
    first: int = 1
    end: int = SEQUENCE_MAX + 1
    since: int = 0
    until: int = TIME_MAX + 1

    def take(self, given: Filter) -> bool:
        """Take a filter, or say that it is left to Spark."""
        match given:
            case IsNotNull((name,)):
                return name in _NEVER_NULL
            case EqualTo((("queue" | "partition") as name,), str() as value):
                return self._among(name, {value})
            case In((("queue" | "partition") as name,), values) if all(isinstance(v, str) for v in values):
                return self._among(name, set(values))
            case StringStartsWith(("partition",), str() as value):
                self.prefixes = [*self.prefixes, value]
                return True
        return self._take_range(given)

    def _among(self, name: str, values: set[str]) -> bool:
        before = self.queues if name == "queue" else self.partitions
        after = frozenset(values) if before is None else before & values
        if name == "queue":
            self.queues = after
        else:
            self.partitions = after
        return True

    def _take_range(self, given: Filter) -> bool:
        """Take a comparison of `seq` or `created_at`, both whole numbers: `> 5` is `>= 6`."""
        name, number = _compared(given)
        if name is None or number is None:
            return False
        low = number + 1 if isinstance(given, GreaterThan) else number
        high = number if isinstance(given, LessThan) else number + 1
        upper = isinstance(given, LessThan | LessThanOrEqual)
        lower = isinstance(given, GreaterThan | GreaterThanOrEqual)
        if not (upper or lower or isinstance(given, EqualTo)):
            return False
        if name == "seq":
            self.first, self.end = _narrowed(
                self.first, self.end, None if upper else low, None if lower else high
            )
        else:
            self.since, self.until = _narrowed(
                self.since, self.until, None if upper else low, None if lower else high
            )
        return True

    def keep(self, pieces: Sequence[Piece]) -> pa.Array:
        """Which messages are in the partitions that are wanted."""
        found = partitions(pieces, pa.string())
        masks = [pc.starts_with(found, prefix) for prefix in self.prefixes]
        if self.partitions is not None:
            masks.append(pc.is_in(found, pa.array(sorted(self.partitions), pa.string())))
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return mask

    @property
    def by_partition(self) -> bool:
        """Whether rows have to be looked at."""
        return self.partitions is not None or bool(self.prefixes)


def _narrowed(first: int, end: int, low: int | None, high: int | None) -> tuple[int, int]:
    return max(first, first if low is None else low), min(end, end if high is None else high)


def _compared(given: Filter) -> tuple[str | None, int | None]:
    """The column that a filter compares, and with which number; None where it isn't one of ours."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    value: Any = getattr(given, "value", None)
    if path == ("seq",) and type(value) is int:
        return "seq", value
    if path == ("created_at",) and isinstance(value, datetime) and value.utcoffset() is not None:
        return "created_at", from_datetime(value)
    return None, None
