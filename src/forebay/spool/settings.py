"""What a spool can be told."""

from typing import Annotated, TypeAlias

import msgspec

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.001)]


class SpoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How files are written; sizes in bytes."""

    events_per_file: _Count = 10_000
    """Events after which a file is finished; one block with more has a file of its own."""
    file_bytes_max: _Count = 64 << 20
    """Bytes after which a file is finished."""
    file_seconds_max: _Seconds = 3_600.0
    """How long a file is written to before it is finished; a replay has it finished when it wants it."""
    flush_bytes_max: _Count = 8 << 20
    """What is written before one sync, unless a single append has more."""
    waiting_bytes_max: _Count = 64 << 20
    """What may wait to be written; more is refused."""
    total_bytes_max: _Count | None = None
    """What all files may take together before messages are refused; as much as the disk has unless given."""
    reserve_bytes: _Size = 16 << 20
    """Space that is kept for settlements, for when the disk is full."""
