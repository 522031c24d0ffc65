"""The values of a FastQueue: a block that is handed out, a place on disk, and damage that was found."""

from typing import Literal

import msgspec

DamageKind = Literal["damaged", "torn", "missing", "unsynced", "meta"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """A block with its number; `enqueued_at_us` is wall time in microseconds, 0 where the format has none."""

    sequence: int
    enqueued_at_us: int
    data: bytes


class Damage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes that are not what was written, exactly from `offset` on.

    `first` and `last` are the sequence numbers that were there, where any are lost. `torn` is the end of a
    write that a crash interrupted; `missing` is a chunk that is gone; `unsynced` is what a failed sync may
    have lost; `meta` is a meta file that can't be used, which costs repetitions and nothing else.
    """

    kind: DamageKind
    file: str
    reason: str
    offset: int = 0
    size: int = 0
    first: int | None = None
    last: int | None = None
    quarantined: str | None = None


class Place(msgspec.Struct, frozen=True, gc=False):
    """A record's position: the number of its chunk, the offset in it, and the record's sequence number."""

    chunk: int
    offset: int
    sequence: int
