"""The tasks of one queue as messages: bytes, and headers that say how to read them.

Headers: `codec`; `contract`, the version of the contract, if it has one; `fields`, how many fields there are,
for the codec whose bytes don't say it. A contract grows only at the end of its fields: a task with fewer of
them was made before the others were there, and has the zero values of their types; one with more was made by
a newer contract.

Invariants: a message without headers has the codec of its queue; bytes that were cut are never taken for an
older task, nor bytes that are no row at all for a newer one.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Self

import msgspec

from forebay.contract.checking import checker
from forebay.contract.errors import Undecodable, UnknownFormat
from forebay.contract.kinds import KINDS
from forebay.contract.naming import python_name
from forebay.contract.rows import Rows, rows_of, written
from forebay.contract.values import CODECS, Field, FieldType, QueueContract, WorkSettings
from forebay.contract.versions import is_newer
from forebay.model import Rejected

__all__ = ["Format", "array_length"]

_NEWER: Final = "work it with the newer contract"
_COUNT_DIGITS: Final = 4
_EXCERPT: Final = 64
_DEFAULT: Final = WorkSettings()
_ANY_ROW: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Format:
    """How the tasks of one queue are written and read."""

    def __init__(self, queue: QueueContract, version: str | None = None) -> None:
        self.queue = queue
        self._version = version
        self._codec = queue.settings.codec
        self._count = len(queue.fields)
        self._rows = rows_of(self._codec, queue.fields)
        self._others: dict[tuple[str, int], Rows] = {(self._codec, self._count): self._rows}
        self._write = self._rows.encode
        self._check = checker(queue.fields)
        self._names = tuple(python_name(field.name) for field in queue.fields)
        single = len(self._names) == 1
        pick = attrgetter(*self._names)
        self._values_of: Callable[[Any], tuple[Any, ...]] = (lambda task: (pick(task),)) if single else pick
        self._zeros = tuple(KINDS[field.type].zero for field in queue.fields)
        self.headers = self._own_headers()

    @classmethod
    def of(
        cls,
        id: int,
        name: str,
        fields: Mapping[str, FieldType],
        *,
        settings: WorkSettings = _DEFAULT,
        version: str | None = None,
    ) -> Self:
        """The format of a queue as generated code says it."""
        listed = tuple(Field(name, kind) for name, kind in fields.items())
        return cls(QueueContract(id, name, listed, settings), version)

    def _own_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {"codec": self._codec}
        if self._version is not None:
            headers["contract"] = self._version
        if self._codec != "msgpack":
            headers["fields"] = str(self._count)
        return headers

    def encode(self, values: Sequence[Any]) -> bytes:
        """The bytes of a task. `Rejected` says which value isn't what its field takes."""
        row = self._check(values)
        try:
            return self._write(row)
        except UnicodeEncodeError:
            return written(self._rows, row)  # which says what is wrong

    def serialize(self, task: Any) -> bytes:
        """The bytes of a task that has its fields as attributes, or as keys: these, and no others."""
        if isinstance(task, msgspec.Struct) or not isinstance(task, Mapping):
            return self.encode(self._values_of(task))
        if odd := task.keys() ^ set(self._names):
            name = min(map(str, odd))
            what = "is missing" if name in self._names else "isn't in the contract"
            raise Rejected(f"field {name[:_EXCERPT]!r} {what}", hint=f"give {', '.join(self._names)}")
        return self.encode([task[name] for name in self._names])

    def decode(self, data: bytes, headers: Mapping[str, str] | None = None) -> tuple[Any, ...]:
        """The values of a task, in the order of the fields."""
        if headers and headers != self.headers:
            return self._other(data, headers)
        try:
            return self._rows.decode(data)
        except Undecodable:
            return self._other(data, headers)  # it may have other fields; if not, it fails as it did

    def unfamiliar(self, data: bytes, headers: Mapping[str, str] | None) -> str | None:
        """Why a task is for a worker with a newer contract; None when it isn't."""
        codec: str = self._codec
        if headers and headers != self.headers:
            version = headers.get("contract")
            if is_newer(version, self._version):
                return f"version {str(version)[:_EXCERPT]!r} of the contract is after ours, {self._version}"
            codec = headers.get("codec", codec)
            if codec not in CODECS:
                return f"codec {codec[:_EXCERPT]!r} isn't known here"
        count = self._found_count(codec, data, headers)
        if count > self._count and (codec != "msgpack" or _is_row(data)):
            return f"it has {count} fields, and the contract here has {self._count}"
        return None

    def _found_count(self, codec: str, data: bytes, headers: Mapping[str, str] | None) -> int:
        """How many fields a task has, as far as it says so itself; 0 when what it says is no number."""
        if codec == "msgpack":
            count = array_length(data)
            return self._count if count is None else count
        text = headers.get("fields") if headers else None
        if text is None:
            return self._count
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else 0

    def _other(self, data: bytes, headers: Mapping[str, str] | None) -> tuple[Any, ...]:
        """A task that isn't quite as ours are: the values of the fields it has, and zeros for the others."""
        if reason := self.unfamiliar(data, headers):
            raise UnknownFormat(reason, hint=_NEWER)
        codec = headers.get("codec", self._codec) if headers else self._codec
        count = min(self._found_count(codec, data, headers), self._count)
        if count < 1:
            raise Undecodable("it has no fields")
        rows = self._others.get((codec, count))
        if rows is None:
            rows = self._others[codec, count] = rows_of(codec, self.queue.fields[:count])
        return rows.decode(data) + self._zeros[count:]


def _is_row(data: bytes) -> bool:
    """Whether it is a whole array of MessagePack, whatever is in it."""
    try:
        _ANY_ROW.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def array_length(data: bytes) -> int | None:
    """How many values a MessagePack array has; None when it is no array."""
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:  # noqa: PLR2004 - MessagePack's mark of a short array
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first)
    if width is None or len(data) <= width:
        return None
    return int.from_bytes(data[1 : 1 + width], "big")
