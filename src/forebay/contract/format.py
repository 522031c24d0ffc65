"""The tasks of one queue as messages: bytes, and headers that say how to read them.

Headers: `codec`; `contract`, the version of the contract, if it has one; `fields`, how many fields there are,
for the codec whose bytes don't say it. A contract grows only at the end of its fields: a task with fewer of
them was made before the others were there, and has the zero values of their types; one with more was made by
a newer contract.

Invariants: a message without headers has the codec of its queue; bytes that were cut are never taken for an
older task.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.contract.checking import checker
from forebay.contract.errors import Undecodable, UnknownFormat
from forebay.contract.kinds import KINDS
from forebay.contract.naming import python_name
from forebay.contract.rows import Rows, rows_of, written
from forebay.contract.values import QueueContract
from forebay.contract.versions import is_newer
from forebay.model import Rejected

__all__ = ["Format", "array_length"]

_NEWER: Final = "work it with the newer contract"
_COUNT_DIGITS: Final = 4
_EXCERPT: Final = 64


class Format:
    """How the tasks of one queue are written and read."""

    def __init__(self, queue: QueueContract, version: str | None = None) -> None:
        self.queue = queue
        self._version = version
        self._codec = queue.settings.codec
        self._count = len(queue.fields)
        self._rows = rows_of(self._codec, queue.fields)
        self._others: dict[tuple[str, int], Rows] = {(self._codec, self._count): self._rows}
        self._check = checker(queue.fields)
        self._names = tuple(python_name(field.name) for field in queue.fields)
        self._zeros = tuple(KINDS[field.type].zero for field in queue.fields)
        self.headers = self._own_headers()

    def _own_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {"codec": self._codec}
        if self._version is not None:
            headers["contract"] = self._version
        if self._codec != "msgpack":
            headers["fields"] = str(self._count)
        return headers

    def encode(self, values: Sequence[Any]) -> bytes:
        """The bytes of a task. `Rejected` says which value isn't what its field takes."""
        return written(self._rows, self._check(values))

    def serialize(self, task: Any) -> bytes:
        """The bytes of a task that has its fields as attributes, or as keys: these, and no others."""
        if not isinstance(task, Mapping):
            return self.encode([getattr(task, name) for name in self._names])
        if odd := task.keys() ^ set(self._names):
            name = min(map(str, odd))
            what = "is missing" if name in self._names else "isn't in the contract"
            raise Rejected(f"field {name[:_EXCERPT]!r} {what}", hint=f"give {', '.join(self._names)}")
        return self.encode([task[name] for name in self._names])

    def decode(self, data: bytes, headers: Mapping[str, str] | None = None) -> tuple[Any, ...]:
        """The values of a task, in the order of the fields."""
        if headers and headers != self.headers:
            return self._foreign(data, headers)
        try:
            return self._rows.decode(data)
        except Undecodable:
            count = array_length(data) if self._codec == "msgpack" else None
            if count is None or count == self._count:
                raise
            return self._counted(self._codec, count, data)

    def _foreign(self, data: bytes, headers: Mapping[str, str]) -> tuple[Any, ...]:
        """A task that says something else of itself than ours do."""
        version = headers.get("contract")
        if is_newer(version, self._version):
            text = f"version {str(version)[:_EXCERPT]!r} of the contract isn't known; here is {self._version}"
            raise UnknownFormat(text, hint=_NEWER)
        codec = headers.get("codec", self._codec)
        count = array_length(data) if codec == "msgpack" else _said_count(headers)
        return self._counted(codec, self._count if count is None else count, data)

    def _counted(self, codec: str, count: int, data: bytes) -> tuple[Any, ...]:
        """The values of the first `count` fields, and zero values for the others."""
        if count > self._count:
            text = f"it has {count} fields, and the contract here has {self._count}"
            raise UnknownFormat(text, hint=_NEWER)
        if count < 1:
            raise Undecodable("it has no fields")
        rows = self._others.get((codec, count))
        if rows is None:
            rows = self._others[codec, count] = rows_of(codec, self.queue.fields[:count])
        return rows.decode(data) + self._zeros[count:]


def _said_count(headers: Mapping[str, str]) -> int | None:
    text = headers.get("fields")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS):
        raise UnknownFormat(f"header 'fields' is {text[:_EXCERPT]!r}, not a number")
    return int(text)


def array_length(data: bytes) -> int | None:
    """How many values a MessagePack array has; None when it is no array."""
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:  # noqa: PLR2004 - MessagePack's mark of a short array
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first)
    if width is None or len(data) <= width:
        return None
    return int.from_bytes(data[1 : 1 + width], "big")
