"""Headers out of a column of maps: the distinct ones, and which of them each row has.

Most rows share few headers, so that maps become dicts once for each distinct one, not for each row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.model.columns import Headers

_INNER: Final = "\x1e"
_OUTER: Final = "\x1f"
"""What texts are joined by to compare maps; maps that hold them are compared one by one."""

Folded = tuple[list[Headers], pa.Array]


def fold_maps(column: pa.Array, extra: Headers | None = None) -> Folded | None:
    """The distinct headers and the index of each row; None where no row has any.

    `extra` is added to all of them, and wins. A value that is null stays None, for others to complain of.
    """
    codes, places = _distinct(column)
    table = [_dict(column[place].as_py()) | (extra or {}) for place in places]
    return None if table in ([{}], []) else (table, pa.array(codes))


def without_garbage(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """The column, and the rows whose headers are not UTF-8: they have none then, as Spark doesn't look."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        bad = {row for row, pairs in enumerate(column) if not _is_text(pairs)}
        rows = pa.array([None if row in bad else row for row in range(len(column))], pa.int64())
        return column.take(rows), sorted(bad)
    return column, []


def _is_text(pairs: pa.Scalar) -> bool:
    try:
        pairs.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _dict(pairs: Any) -> Headers:
    return dict(pairs or ())


def _distinct(column: pa.Array) -> tuple[Any, list[int]]:
    """Which kind of map each row has, and for each kind the first row that has it."""
    joined = _joined(column)
    texts = joined if joined is not None else pa.array([repr(pairs or []) for pairs in column.to_pylist()])
    encoded = texts.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int32)
    _, places = np.unique(codes, return_index=True)
    return codes, places.tolist()


def _joined(column: pa.Array) -> pa.Array | None:
    """A text for each row, which is the same for the same map; None where that can't be told by joining."""
    keys, items = column.keys, column.items
    for texts in (keys, items):
        if texts.null_count or _has(texts, _INNER) or _has(texts, _OUTER):
            return None
    lists = [pa.ListArray.from_arrays(_offsets(column), texts) for texts in (keys, items)]
    halves = [pc.binary_join(texts, _INNER) for texts in lists]
    joined = pc.binary_join_element_wise(*halves, _OUTER)
    counted = pc.binary_join_element_wise(pc.list_value_length(lists[0]).cast(pa.string()), joined, _OUTER)
    return pc.if_else(pc.is_valid(column), counted, f"0{_OUTER}{_OUTER}")


def _has(texts: pa.Array, mark: str) -> bool:
    return bool(pc.any(pc.match_substring(texts, mark)).as_py())


def _offsets(column: pa.Array) -> pa.Array:
    """Where the pairs of each row begin, without what says that a row has none."""
    return pa.Array.from_buffers(
        pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset
    )
