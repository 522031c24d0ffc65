"""A contract as a value: queues, their fields in order, and what they say about the work."""

from typing import Final, Literal

import msgspec

__all__ = ["CODECS", "Backoff", "Codec", "Contract", "Field", "FieldType", "QueueContract", "WorkSettings"]

FieldType = Literal["int", "int64", "string", "bool", "[]byte", "[]int", "[]int64"]
Codec = Literal["msgpack", "iproto"]
CODECS: Final[tuple[Codec, ...]] = ("msgpack", "iproto")


class Field(msgspec.Struct, frozen=True):
    """One value of a task. Its place among the fields is its place in the bytes."""

    name: str
    type: FieldType


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a task waits after its handler has raised; what is None is the worker's default."""

    initial_seconds: float | None = None
    """The first pause, up to the longest."""
    factor: float | None = None
    """How many times longer each pause is than the one before: 1 to 1,000."""
    max_seconds: float | None = None
    """The longest pause, up to a year."""
    jitter: float | None = None
    """The part of a pause, from 0 to 1, that is left to chance, so that tasks don't come back all at once."""


class WorkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a contract says about working a queue; what is None is the worker's default."""

    visibility_seconds: float | None = None
    """How long a worker may take before its tasks go to another: 100 ms to a day."""
    handle_seconds_max: float | None = None
    """How long a handler may have a batch before it is cancelled and has failed: 100 ms to a year."""
    batch_size: int | None = None
    """Tasks that a handler gets at once at most: 1 to 10,000."""
    max_processors: int | None = None
    """Handlers of this queue that run at once at most: 1 to 1,000."""
    ordered: bool = False
    """Tasks of a partition are worked in the order in which they were put. Fixed when the queue is made."""
    retries_max: int | None = None
    """How often a task may come back before it is a dead letter; none sets no limit."""
    backoff: Backoff = Backoff()
    """How long a task waits after its handler has raised."""
    codec: Codec = "msgpack"
    """How tasks are written, and how those are read whose headers don't say it."""


class QueueContract(msgspec.Struct, frozen=True):
    """A queue and the fields of its tasks."""

    id: int
    """The number of the queue."""
    name: str
    fields: tuple[Field, ...]
    settings: WorkSettings = WorkSettings()


class Contract(msgspec.Struct, frozen=True):
    """What a file says: its version, if it has one, and its queues."""

    version: str | None
    """Numbers with points between them, as in `2` or `1.4`."""
    queues: tuple[QueueContract, ...]
