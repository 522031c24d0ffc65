"""The block: messages of one queue that are written together, as columns.

Invariants: every column that is there is as long as `payloads`; an index points into its table; no
index means that the table has one entry, shared by all; a block is never changed once made, and a
slice of it keeps its id.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import compress, repeat
from typing import Any, Protocol, cast

import msgspec

from forebay.model.clock import SystemClock
from forebay.model.columns import Headers, fold, fold_headers, refold, unfold
from forebay.model.errors import Rejected
from forebay.model.identity import ID_BYTES, format_id, mint
from forebay.model.message import Message, whole


class BlockLike(Protocol):
    """What a block is in whatever form: an id, and so many messages."""

    @property
    def id(self) -> bytes:
        """The id of the block."""

    def __len__(self) -> int:
        """How many messages there are."""


class Block(msgspec.Struct, frozen=True):
    """Messages as columns; `created_at` and `start_times` are in microseconds.

    An entry of `header_table` that is empty means no headers; no `header_table` means that no
    message has any.
    """

    id: bytes
    created_at: int
    payloads: list[bytes]
    partition_table: list[str]
    partition_index: list[int] | None = None
    transaction_ids: list[str | None] | None = None
    header_table: list[Headers] | None = None
    header_index: list[int] | None = None
    start_times: list[int | None] | None = None

    @classmethod
    def of(
        cls,
        messages: Sequence[Message | bytes],
        *,
        id: bytes | None = None,
        created_at: int | None = None,
    ) -> "Block":
        """Gather messages in a block, with a fresh id and the machine's time by default.

        Bytes are the payload of a message that has nothing else: no object is made for it. Rejected where
        something is neither.
        """
        made = mint() if id is None else id
        moment = SystemClock().now() if created_at is None else created_at
        kinds = set(map(type, messages))
        if kinds == {bytes}:
            return cls(made, moment, cast("list[bytes]", list(messages)), [""])
        if not all(issubclass(kind, bytes | Message) for kind in kinds):
            raise _no_message(messages)
        rows = cast("Sequence[Message]", messages) if kinds == {Message} else list(map(whole, messages))
        # A loop over a column is twice as fast as anything that takes all of a message at once.
        transaction_ids = [row.transaction_id for row in rows]
        start_times = [row.start_time for row in rows]
        return cls(
            made,
            moment,
            [row.payload for row in rows],
            *fold([row.partition for row in rows] or [""]),
            None if transaction_ids.count(None) == len(rows) else transaction_ids,
            *fold_headers([row.headers for row in rows] or [None]),
            None if start_times.count(None) == len(rows) else start_times,
        )

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.payloads)

    def __iter__(self) -> Iterator[Message]:
        """Give the messages in order."""
        return map(
            Message,
            self.payloads,
            self.partitions(),
            self.transaction_ids or repeat(None),
            self.headers(),
            self.start_times or repeat(None),
        )

    def __repr__(self) -> str:
        """Name the block without showing its payloads."""
        name = format_id(self.id) if len(self.id) == ID_BYTES else repr(self.id)
        return f"<Block {name} of {len(self)}>"

    def partition(self, i: int) -> str:
        """Return the partition of message `i`."""
        return self.partition_table[0 if self.partition_index is None else self.partition_index[i]]

    def partitions(self) -> list[str]:
        """Return the partition of every message."""
        return unfold(self.partition_table, self.partition_index, len(self))

    def headers(self) -> list[Headers | None]:
        """Return the headers of every message; equal ones are one dict, so change none."""
        table: list[Headers | None] = [headers or None for headers in self.header_table or ({},)]
        return unfold(table, self.header_index, len(self))

    def message(self, i: int) -> Message:
        """Return message `i`."""
        headers = None
        if self.header_table is not None:
            entry = 0 if self.header_index is None else self.header_index[i]
            headers = self.header_table[entry] or None
        return Message(
            self.payloads[i],
            self.partition(i),
            None if self.transaction_ids is None else self.transaction_ids[i],
            headers,
            None if self.start_times is None else self.start_times[i],
        )

    def slice(self, start: int, stop: int) -> "Block":
        """Return messages `start` up to, but not including, `stop`, under the same id."""
        return self._each(lambda column: column[start:stop])

    def without(self, indexes: Collection[int]) -> "Block":
        """Return the block without these messages, under the same id."""
        if not indexes:
            return self
        keep = bytearray(b"\x01") * len(self)
        for index in indexes:
            keep[index] = 0
        return self._each(lambda column: list(compress(column, keep)))

    def _each(self, pick: Callable[[list[Any]], list[Any]]) -> "Block":
        """Apply `pick` to every column that has a row per message."""
        partitions: tuple[list[str], list[int] | None] = (self.partition_table, None)
        headers: tuple[list[Headers] | None, list[int] | None] = (self.header_table, None)
        if self.partition_index is not None:
            partitions = refold(self.partition_table, pick(self.partition_index))
        if self.header_index is not None and self.header_table is not None:
            headers = refold(self.header_table, pick(self.header_index))
        return Block(
            self.id,
            self.created_at,
            pick(self.payloads),
            *partitions,
            _pick_some(self.transaction_ids, pick),
            *(headers if headers[0] != [{}] else (None, None)),
            _pick_some(self.start_times, pick),
        )


def _pick_some(column: list[Any] | None, pick: Callable[[list[Any]], list[Any]]) -> list[Any] | None:
    """Pick from a column that may be absent; what is left of it may be nothing."""
    picked = [] if column is None else pick(column)
    return None if picked.count(None) == len(picked) else picked


def shape_fault(block: Block) -> str | None:
    """Say which column does not fit the others; None if the block keeps its invariants."""
    count = len(block.payloads)
    if len(block.id) != ID_BYTES:
        return f"the id is {len(block.id)} bytes long"
    for name, rows in (
        ("transaction_ids", block.transaction_ids),
        ("start_times", block.start_times),
    ):
        if rows is not None and len(rows) != count:
            return f"{name} has {len(rows)} rows for {count} messages"
    return _index_fault("partition", block.partition_table, block.partition_index, count) or _index_fault(
        "header", block.header_table, block.header_index, count
    )


def _index_fault(
    name: str, table: Sequence[object] | None, index: list[int] | None, count: int
) -> str | None:
    if table is None:
        return None if index is None else f"{name}_index has no table"
    if index is None:
        return None if len(table) == 1 else f"{name}_table has {len(table)} entries and no index"
    if len(index) != count:
        return f"{name}_index has {len(index)} rows for {count} messages"
    if index and not (min(index) >= 0 and max(index) < len(table)):
        return f"{name}_index points outside its table"
    return None


def _no_message(messages: Sequence[object]) -> Rejected:
    """The error of the first of them that is neither a message nor bytes."""
    index, odd = next(
        (i, type(each).__name__) for i, each in enumerate(messages) if not isinstance(each, bytes | Message)
    )
    return Rejected(
        f"message {index} is {odd}, neither a Message nor bytes",
        hint="encode it, as text.encode() or json.dumps(value).encode()",
    )
