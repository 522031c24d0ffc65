"""Columns with few distinct values, held as a table and an index into it.

Invariants: without an index the table has one entry, which all rows share; the order of the table
is that of first use, and `fold` and `refold` leave nothing unused in it.
"""

from collections.abc import Hashable, Sequence
from itertools import count
from typing import TypeVar

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)

Headers = dict[str, str]


def fold(values: Sequence[Key]) -> tuple[list[Key], list[int] | None]:
    """Return the table and the index of a column of at least one row."""
    first = values[0]
    if values.count(first) == len(values):
        return [first], None
    places = _places(values)
    return list(places), list(map(places.__getitem__, values))


def fold_headers(values: Sequence[Headers | None]) -> tuple[list[Headers] | None, list[int] | None]:
    """Return the table and the index of a column of headers; no table if there are none."""
    first = values[0]
    if values.count(first) == len(values):
        return ([first] if first else None), None
    keys = [frozenset(headers.items()) if headers else None for headers in values]
    table = [headers or {} for headers in dict(zip(keys, values, strict=True)).values()]
    if table == [{}]:
        return None, None
    return table, list(map(_places(keys).__getitem__, keys))


def refold(table: list[Value], index: list[int]) -> tuple[list[Value], list[int] | None]:
    """Drop what the index does not use, and the index too if all rows share one entry."""
    used = dict.fromkeys(index)
    if len(used) <= 1:
        return [table[next(iter(used), 0)]], None
    if list(used) == list(range(len(table))):
        return table, index
    return [table[old] for old in used], list(map(_places(index).__getitem__, index))


def unfold(table: list[Value], index: list[int] | None, n: int) -> list[Value]:
    """Return the `n` rows of a column."""
    if index is None:
        return table * n
    return list(map(table.__getitem__, index))


def _places(values: Sequence[Key]) -> dict[Key, int]:
    """Give the distinct values numbers, in the order of first use."""
    return dict(zip(dict.fromkeys(values), count(), strict=False))
