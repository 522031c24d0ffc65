"""What the server can be told about the format of Queen MQ."""

from typing import Annotated, Final, TypeAlias

import msgspec

__all__ = ["KEY_PATTERN", "QueenSettings"]

KEY_PATTERN: Final = r"^[0-9a-fA-F]{64}\Z"

_Path: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]
_Key: TypeAlias = Annotated[
    str,
    msgspec.Meta(pattern=KEY_PATTERN, description="a key of 64 hexadecimal digits", extra={"secret": True}),
]


class QueenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What clients of Queen MQ find."""

    encryption_keys_file: _Path | None = None
    """Keys for queues with `encryptionEnabled`, 64 hexadecimal digits a line: the first seals, all open."""
    encryption_key: _Key | None = None
    """One such key; it comes after those of the file. It is never shown."""
