"""Bounds on what may be pushed, and the rules for names.

Invariants: every limit is at least 1 and at most its ceiling; the ceilings belong to the block
format, so whatever is within the limits can be written and read back; a message of the largest size
fits in a block.
"""

import re
from typing import Annotated, Final, TypeAlias

import msgspec

from forebay.model.errors import Misconfigured, Rejected, TooLarge
from forebay.model.quantity import format_bytes

BLOCK_BYTES_CEILING: Final = 64 << 20
"""The largest body, before compression, that a block may have in format version 1."""
BLOCK_MESSAGES_CEILING: Final = 100_000
"""The most messages that a block may have in format version 1."""

_FRAME_BYTES: Final = 4096
"""Room for what surrounds a single message of the largest size in a block."""
_NAME_BYTES_MAX: Final = 255
_EXCERPT: Final = 64
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DOTS: Final = frozenset({".", ".."})


_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=BLOCK_BYTES_CEILING)]
_NameSize: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_NAME_BYTES_MAX)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=BLOCK_MESSAGES_CEILING)]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a push may hold; sizes in bytes."""

    message_bytes_max: _Size = 1 << 20
    """The payload of a message."""
    headers_bytes_max: _Size = 16 << 10
    """All keys and values of a message's headers together."""
    block_messages_max: _Count = 10_000
    """Messages in a block."""
    block_bytes_max: _Size = 16 << 20
    """The body of a block before compression."""
    transaction_id_bytes_max: _NameSize = 255
    """A transaction id."""
    partition_bytes_max: _NameSize = 255
    """The name of a partition."""

    def __post_init__(self) -> None:
        """Refuse limits that the block format cannot keep."""
        for field in msgspec.structs.fields(self):
            value, ceiling = getattr(self, field.name), field.type.__metadata__[0].le
            if not 1 <= value <= ceiling:
                raise Misconfigured(
                    f"limit {field.name} is {value}", hint=f"set it between 1 and {ceiling}", key=field.name
                )
        largest = self.message_bytes_max + self.headers_bytes_max + _FRAME_BYTES
        if largest > self.block_bytes_max:
            raise Misconfigured(
                f"limit block_bytes_max is {self.block_bytes_max}, less than the largest message",
                hint=f"set it to {largest} or more, or lower message_bytes_max",
                key="block_bytes_max",
            )


def check_queue_name(name: str) -> str:
    """Return `name` if a queue may be called so."""
    return _check_name(name, "queue name")


def check_group_name(name: str) -> str:
    """Return `name` if a group may be called so."""
    return _check_name(name, "group name")


def check_partition(partition: str, bytes_max: int = _NAME_BYTES_MAX, what: str = "partition") -> str:
    """Return `partition` if a message may have it; the empty one is the default partition."""
    return check_text(partition, what, bytes_max)


def check_text(text: object, what: str, bytes_max: int) -> str:
    """Return `text` if it is short enough and has no control characters; `what` names it."""
    if not isinstance(text, str):
        raise Rejected(f"{what} is {type(text).__name__}, not text", hint="give a string")
    try:
        length = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise Rejected(
            f"{what} {_excerpt(text)} cannot be written as UTF-8", hint="remove the lone surrogates"
        ) from None
    if length > bytes_max:
        raise TooLarge(
            f"{what} is {length} bytes long, over {format_bytes(bytes_max)}",
            hint="shorten it",
        )
    if found := _CONTROL.search(text):
        raise Rejected(
            f"{what} {_excerpt(text)} has a control character at position {found.start()}",
            hint="remove it",
        )
    return text


def _check_name(name: str, what: str) -> str:
    check_text(name, what, _NAME_BYTES_MAX)
    if not name or name.isspace():
        raise Rejected(f"{what} is empty", hint="give it at least one visible character")
    if name != name.strip():
        raise Rejected(
            f"{what} {_excerpt(name)} starts or ends with whitespace",
            hint=f"write it as {_excerpt(name.strip())}",
        )
    if name in _DOTS:
        raise Rejected(f"{what} {name!r} means a folder in a URL", hint="use another character too")
    return name


def _excerpt(text: str) -> str:
    """Quote the start of a text that may be long or unprintable."""
    return ascii(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "...")
