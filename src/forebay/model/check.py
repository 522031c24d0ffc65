"""The gate for a block before it is written: types, sizes and times, column by column.

Invariants: a block that passes is encoded without error and decodes to an equal one; a block that
does not is named by the index of its first bad message. Columns are judged whole, and gone through
row by row only to find the culprit.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from forebay.model.block import Block, shape_fault
from forebay.model.clock import TIME_MAX
from forebay.model.columns import Headers
from forebay.model.errors import Rejected, TooLarge
from forebay.model.limits import Limits, check_partition, check_text
from forebay.model.quantity import format_bytes

_CONTROL: Final = bytes(range(0x20)) + b"\x7f"
_FRAME_BYTES: Final = 64
_ROW_BYTES: Final = 5
_TIME_BYTES: Final = 9


def check_block(block: Block, limits: Limits) -> int:
    """Raise `Rejected` or `TooLarge`, saying which message breaks which rule; return its `body_bytes`."""
    count = len(block)
    if count == 0:
        raise Rejected("the block has no messages", hint="push at least one")
    if count > limits.block_messages_max:
        raise TooLarge(
            f"the block has {count} messages, over the limit of {limits.block_messages_max}",
            hint="push fewer at once, or raise block_messages_max",
        )
    if fault := shape_fault(block):
        raise AssertionError(fault)
    _check_time(block.created_at, "created_at of the block")
    _check_payloads(block.payloads, limits.message_bytes_max)
    _check_partitions(block, limits.partition_bytes_max)
    if block.transaction_ids is not None:
        _check_transaction_ids(block.transaction_ids, limits.transaction_id_bytes_max)
    _check_headers(block, limits.headers_bytes_max)
    if block.start_times is not None:
        _check_start_times(block.start_times)
    if (size := body_bytes(block)) > limits.block_bytes_max:
        raise TooLarge(
            f"the block takes {size} bytes, over {format_bytes(limits.block_bytes_max)}",
            hint="push fewer messages at once, or raise block_bytes_max",
        )
    return size


def body_bytes(block: Block) -> int:
    """Return the length of the body before compression, or slightly more; never less."""
    size = _FRAME_BYTES + sum(map(len, block.payloads)) + _ROW_BYTES * len(block)
    size += _text_bytes(block.partition_table)
    size += _ROW_BYTES * (len(block.partition_index or ()) + len(block.header_index or ()))
    if block.transaction_ids is not None:
        size += _text_bytes(list(filter(None, block.transaction_ids))) + _ROW_BYTES * len(block)
    if block.header_table is not None:
        size += _text_bytes(list(_header_texts(block.header_table)))
        size += _ROW_BYTES * len(block.header_table)
    return size + _TIME_BYTES * len(block.start_times or ())


def _text_bytes(texts: list[str]) -> int:
    joined = "".join(texts)
    length = len(joined) if joined.isascii() else len(joined.encode())
    return length + _ROW_BYTES * len(texts)


def _all_plain(texts: list[str], bytes_max: int) -> bool:
    """Tell whether all are short ASCII without control characters: the common case."""
    try:
        joined = "".join(texts)
    except TypeError:
        return False
    if not joined.isascii() or max(map(len, texts), default=0) > bytes_max:
        return False
    data = joined.encode()
    return len(data.translate(None, _CONTROL)) == len(data)


def _first_user(index: list[int] | None, entry: int) -> int:
    """Return the first message that uses an entry of a table."""
    return 0 if index is None or entry not in index else index.index(entry)


def _check_partitions(block: Block, bytes_max: int) -> None:
    if not _all_plain(block.partition_table, bytes_max):
        for index, partition in enumerate(block.partitions()):
            check_partition(partition, bytes_max, f"message {index}: partition")


def _check_payloads(payloads: list[bytes], bytes_max: int) -> None:
    if set(map(type, payloads)) == {bytes} and max(map(len, payloads)) <= bytes_max:
        return
    for index, payload in enumerate(payloads):
        if type(payload) is not bytes:
            raise Rejected(
                f"message {index}: payload is {type(payload).__name__}, not bytes",
                hint="encode it first",
            )
        if len(payload) > bytes_max:
            raise TooLarge(
                f"message {index}: payload is {len(payload)} bytes, over {format_bytes(bytes_max)}",
                hint="split it, push an address in its place, or raise message_bytes_max",
            )


def _check_transaction_ids(ids: list[str | None], bytes_max: int) -> None:
    present = [text for text in ids if text is not None]
    if all(present) and _all_plain(present, bytes_max):
        return
    for index, text in enumerate(ids):
        if text == "":
            raise Rejected(f"message {index}: transaction id is empty", hint="leave it out, or give one")
        if text is not None:
            check_text(text, f"message {index}: transaction id", bytes_max)


def _check_headers(block: Block, bytes_max: int) -> None:
    if block.header_table is None or _headers_fit(block.header_table, bytes_max):
        return
    for entry, headers in enumerate(block.header_table):
        try:
            size = len("".join(headers).encode()) + len("".join(headers.values()).encode())
        except (AttributeError, TypeError, UnicodeEncodeError) as error:
            where = f"message {_first_user(block.header_index, entry)}"
            raise Rejected(
                f"{where}: headers are not text to text ({error})",
                hint="give a dict of strings to strings",
            ) from None
        if size > bytes_max:
            where = f"message {_first_user(block.header_index, entry)}"
            raise TooLarge(
                f"{where}: headers are {size} bytes, over {format_bytes(bytes_max)}",
                hint="move data to the payload, or raise headers_bytes_max",
            )


def _headers_fit(table: list[Headers], bytes_max: int) -> bool:
    """Tell whether all headers together are text within the limit of one message: mostly so."""
    try:
        joined = "".join(_header_texts(table))
        return len(joined) <= bytes_max and len(joined.encode()) <= bytes_max
    except (AttributeError, TypeError, UnicodeEncodeError):
        return False


def _header_texts(table: list[Headers]) -> Iterator[str]:
    return chain(chain.from_iterable(table), chain.from_iterable(map(dict.values, table)))


def _check_start_times(times: list[int | None]) -> None:
    present = [moment for moment in times if moment is not None]
    if (
        set(map(type, present)) <= {int}
        and min(present, default=0) >= 0
        and max(present, default=0) <= TIME_MAX
    ):
        return
    for index, moment in enumerate(times):
        if moment is not None:
            _check_time(moment, f"message {index}: start_time")


def _check_time(moment: int, what: str) -> None:
    if type(moment) is not int or not 0 <= moment <= TIME_MAX:
        raise Rejected(
            f"{what} is {moment!r}", hint="give whole microseconds since 1970, up to the year 9999"
        )
