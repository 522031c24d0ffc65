"""The types that a field can have: what each is in Python, takes, and is in a task that lacks it."""

from typing import Annotated, Any, Final

import msgspec

from forebay.contract.values import FieldType

__all__ = ["INT_MAX", "INT_MIN", "KINDS", "Kind"]

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
_Int64 = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]


class Kind(msgspec.Struct, frozen=True):
    """One type."""

    python: str
    """What a task has, as it is written in Python."""
    taken: str
    """What a caller may give, likewise."""
    decoded: Any
    """What a task has, for msgspec, with its bounds."""
    types: tuple[type, ...]
    """What a caller may give: the first is what a task has, the others become it."""
    zero: Any
    """What a task has that was made before the field was appended."""
    text: str
    """What it is, for people."""


_INT: Final = Kind("int", "int", _Int64, (int,), 0, "a whole number of 64 bits, with a sign")
_INTS: Final = Kind(
    "tuple[int, ...]", "Sequence[int]", tuple[_Int64, ...], (tuple, list, range), (), "such numbers, in order"
)  # fmt: skip

KINDS: Final[dict[FieldType, Kind]] = {
    "int": _INT,
    "int64": _INT,
    "string": Kind("str", "str", str, (str,), "", "text, in UTF-8"),
    "bool": Kind("bool", "bool", bool, (bool,), False, "true or false"),
    "[]byte": Kind("bytes", "bytes", bytes, (bytes, bytearray, memoryview), b"", "bytes of any kind"),
    "[]int": _INTS,
    "[]int64": _INTS,
}
