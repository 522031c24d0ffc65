"""The meta file of metrics-governor: offsets in the whole stream, version 1 or 2.

It says nothing that can be checked but by the chunks, so it is only ever believed where they agree.
"""

from typing import Final

import msgspec

_OFFSET_MAX: Final = 1 << 62


class GovernorMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields in the original's order; the last two are left out when 0, and version 1 has neither."""

    name: str
    reader_offset: int
    writer_offset: int
    version: int
    entry_count: int = 0
    total_bytes: int = 0


def encode_governor_meta(meta: GovernorMeta) -> bytes:
    """The file's content, as the original writes it."""
    return msgspec.json.format(msgspec.json.encode(meta), indent=2)


def decode_governor_meta(data: bytes) -> GovernorMeta | None:
    """Read the file's content; None where it can't be one."""
    try:
        meta = msgspec.json.decode(data, type=GovernorMeta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return meta if 0 <= meta.reader_offset <= meta.writer_offset < _OFFSET_MAX else None
