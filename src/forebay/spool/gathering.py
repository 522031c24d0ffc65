"""A block of which some lines were read, as columns: one line after the other, or many at once.

Invariants: it makes no difference how lines came; what it holds is bounded by twice the largest block.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from forebay.model import BLOCK_BYTES_CEILING, BLOCK_MESSAGES_CEILING, Block, Headers, Rejected, parse_id
from forebay.model.columns import fold, fold_headers
from forebay.spool.lines import BadLineError, Line, Part, payload_of

_BYTES_MAX: Final = 2 * BLOCK_BYTES_CEILING


class Gathering:
    """The block; `next` is the position that comes next, `torn` says that lines are missing.

    Raises `Rejected` where the id of the block is none.
    """

    def __init__(self, first: Part | Line, *, torn: bool = False) -> None:
        self.queue = first.queue or ""
        self.name = first.block or ""
        self.size = first.size
        self.next = 0
        self.torn = torn
        self._id = parse_id(self.name)
        self._created_at = first.created_at
        self._bytes = 0
        self._last: Headers | None = None
        self._payloads: list[bytes] = []
        self._partitions: list[str] = []
        self._transaction_ids: list[str | None] = []
        self._headers: list[Headers | None] = []
        self._start_times: list[int | None] = []

    @classmethod
    def begin(cls, line: Line) -> "Gathering | None":
        """Make one for a line, which is not taken by that; None where no block begins with it."""
        if line.settlement is not UNSET or line.queue is None or line.block is None:
            return None
        if line.position != 0 or not 0 < line.size <= BLOCK_MESSAGES_CEILING:
            return None
        try:
            return cls(line)
        except Rejected:
            return None

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self._payloads)

    @property
    def missing(self) -> int:
        """How many lines are still to come."""
        return self.size - self.next

    @property
    def is_too_large(self) -> bool:
        """Whether there is more than any block may have; then some of it isn't held."""
        return self._bytes > _BYTES_MAX

    def goes_on_with(self, part: Part) -> bool:
        """Whether a line is one of this block, perhaps after some that are missing."""
        return (
            part.block == self.name
            and part.position >= self.next
            and part.size == self.size
            and part.queue == self.queue
        )

    def add(self, part: Part) -> None:
        """Take a line that the block goes on with."""
        message = part.message
        headers, self._last, size = self._share([message.headers])
        self._bytes += len(message.payload) + size
        if not self.is_too_large:
            self._payloads.append(message.payload)
            self._partitions.append(message.partition)
            self._transaction_ids.append(message.transaction_id)
            self._headers += headers
            self._start_times.append(message.start_time)
        self.next = part.position + 1

    def add_run(self, lines: Sequence[Line], start: int) -> int:
        """Take the lines from `start` on that follow in order; say how many, 0 if they need a closer look."""
        lines = lines[start : start + self.missing]
        lines = lines[: self._run_length(lines)]
        try:
            payloads = [payload_of(line) if line.payload is UNSET else bytes(line.payload) for line in lines]
        except BadLineError:
            return 0
        headers, last, size = self._share([line.headers or None for line in lines])
        size += sum(map(len, payloads))
        if self._bytes + size > _BYTES_MAX:
            return 0
        self._bytes += size
        self._last = last
        self._payloads += payloads
        self._partitions += [line.partition for line in lines]
        self._transaction_ids += [line.transaction_id for line in lines]
        self._headers += headers
        self._start_times += [line.start_time for line in lines]
        self.next += len(lines)
        return len(lines)

    def _run_length(self, lines: Sequence[Line]) -> int:
        queue, name, size, position = self.queue, self.name, self.size, self.next
        for line in lines:
            if (
                line.position != position
                or line.block != name
                or line.size != size
                or line.queue != queue
                or line.settlement is not UNSET
            ):
                break
            position += 1
        return position - self.next

    def _share(self, headers: list[Headers | None]) -> tuple[list[Headers | None], Headers | None, int]:
        """Equal headers as one dict, as most of a block are; the last of them; the bytes that they add."""
        last, size = self._last, 0
        if headers.count(None) == len(headers):
            return headers, last, size
        shared: list[Headers | None] = []
        for one in headers:
            if one is not None and one != last:
                last = one
                size += sum(map(len, one)) + sum(map(len, one.values()))
            shared.append(None if one is None else last)
        return shared, last, size

    def block(self) -> Block:
        """What there is, as `Block.of` would have it."""
        count = len(self)
        return Block(
            self._id,
            self._created_at,
            self._payloads,
            *fold(self._partitions),
            None if self._transaction_ids.count(None) == count else self._transaction_ids,
            *fold_headers(self._headers),
            None if self._start_times.count(None) == count else self._start_times,
        )
