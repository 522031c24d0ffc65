"""Rows that can't be messages: which, why, and what becomes of them.

Pages are judged whole, by column; only where that finds something the rows are gone through one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from forebay.log.values import Queue
from forebay.model import TIME_MAX, Limits, Message, Rejected, check_partition, format_bytes
from forebay.model.limits import check_text
from forebay.spark.publishing import NAMED_MAX

if TYPE_CHECKING:
    from forebay.spark.rows import Page

Faults = dict[int, str]
"""What is wrong with a row, by its place in the page."""

_CONTROL: Final = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
_CUT: Final = 200


def is_plain(page: Page, queues: Mapping[str, Queue], limits: Limits) -> bool:
    """Whether every row can be a message: a judgement by columns."""
    value, times = page.columns["value"], page.get("start_time")
    return (
        value.null_count == 0
        and _most(pc.binary_length(value)) <= limits.message_bytes_max
        and _are_known(page.get("queue"), queues)
        and _are_texts(page.get("partition"), 0, limits.partition_bytes_max)
        and _are_texts(page.get("key"), 1, limits.transaction_id_bytes_max)
        and (times is None or (_least(times) >= 0 and _most(times) <= TIME_MAX))
        and (page.headers is None or not any(_header_fault(entry, limits) for entry in page.headers[0]))
    )


def row_faults(page: Page, queues: Mapping[str, Queue], limits: Limits) -> Faults:
    """What is wrong with which rows."""
    found = {row: _fault(given, queues, limits) for row, given in enumerate(_rows(page))}
    return {row: fault for row, fault in found.items() if fault is not None}


def side_messages(page: Page, faults: Faults, place: int, limits: Limits) -> Iterator[Message]:
    """Bad rows as messages for people to look at: what came, and in the headers what is wrong with it.

    A value that is too large is cut, and `value_bytes` says how long it was.
    """
    for row, given in enumerate(_rows(page)):
        if row in faults:
            value: bytes = given["value"] or b""
            headers = {"error": faults[row], "spark_partition": str(place), "row": str(page.first + row)}
            if len(value) > limits.message_bytes_max:
                headers["value_bytes"] = str(len(value))
            for name in ("queue", "partition", "key"):
                if given[name] is not None:
                    headers[name] = _text(given[name])[:_CUT]
            yield Message(value[: limits.message_bytes_max], headers=headers)


class BadRowCount:
    """The bad rows of one task: how many, and the first few of them."""

    def __init__(self, place: int) -> None:
        self.count = 0
        self.named: list[str] = []
        self._place = place

    def add(self, first: int, faults: Faults) -> None:
        """Count those of a page."""
        self.count += len(faults)
        for row in sorted(faults)[: NAMED_MAX - len(self.named)]:
            self.named.append(f"Spark partition {self._place}, row {first + row}: {faults[row]}")


def _most(numbers: pa.Array) -> int:
    return pc.max(numbers).as_py() or 0


def _least(numbers: pa.Array) -> int:
    return pc.min(numbers).as_py() or 0


def _are_known(names: pa.Array | None, queues: Mapping[str, Queue]) -> bool:
    if names is None:
        return True
    return names.null_count == 0 and all(name in queues for name in pc.unique(names).to_pylist())


def _are_texts(texts: pa.Array | None, least: int, most: int) -> bool:
    if texts is None or texts.null_count == len(texts):
        return True
    if not _is_unicode(texts):
        return False
    lengths = pc.binary_length(texts)
    if _most(lengths) > most or _least(lengths) < least:
        return False
    return not pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py()


def _is_unicode(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rows(page: Page) -> Iterator[dict[str, Any]]:
    """The rows of a page one by one: texts as bytes, for they may be none."""
    names = ("value", "queue", "partition", "key", "start_time")
    lists = [_cells(page.get(name), len(page)) for name in names]
    index = [0] * len(page) if page.headers is None else page.headers[1].to_pylist()
    table = [{}] if page.headers is None else page.headers[0]
    for cells, entry in zip(zip(*lists, strict=True), index, strict=True):
        yield dict(zip(names, cells, strict=True)) | {
            "headers": table[entry],
            "has_queue": page.get("queue") is not None,
        }


def _cells(column: pa.Array | None, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    found: list[Any] = (column.cast(pa.large_binary()) if is_text else column).to_pylist()
    return found


def _fault(given: dict[str, Any], queues: Mapping[str, Queue], limits: Limits) -> str | None:
    value, time = given["value"], given["start_time"]
    if value is None:
        return "value is null"
    if len(value) > limits.message_bytes_max:
        return f"value is {len(value)} bytes, over {format_bytes(limits.message_bytes_max)}"
    if time is not None and not 0 <= time <= TIME_MAX:
        return "start_time is before 1970, or after 9999"
    return (
        _queue_fault(given, queues) or _text_fault(given, limits) or _header_fault(given["headers"], limits)
    )


def _queue_fault(given: dict[str, Any], queues: Mapping[str, Queue]) -> str | None:
    if not given["has_queue"]:
        return None
    if given["queue"] is None:
        return "queue is null"
    name = _text(given["queue"])
    return None if name in queues else f"there is no queue {name[:_CUT]!r}"


def _text_fault(given: dict[str, Any], limits: Limits) -> str | None:
    try:
        if given["partition"] is not None:
            check_partition(given["partition"].decode(), limits.partition_bytes_max)
        if given["key"] is not None:
            check_text(given["key"].decode(), "key", limits.transaction_id_bytes_max)
    except UnicodeDecodeError:
        return "partition or key is not UTF-8"
    except Rejected as error:
        return error.message
    return "key is empty" if given["key"] == b"" else None


def _header_fault(headers: dict[str, Any], limits: Limits) -> str | None:
    empty = next((name for name, value in headers.items() if value is None), None)
    if empty is not None:
        return f"header {empty[:_CUT]!r} is null"
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    return (
        f"headers are {size} bytes, over {format_bytes(limits.headers_bytes_max)}"
        if size > limits.headers_bytes_max
        else None
    )


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
