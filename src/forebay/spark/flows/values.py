"""Flows as values: what a file of flows says, checked. Pure; knows nothing of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from forebay.deliver.settings import QueueDeliverySettings

FlowType = Literal["REST_DATA_SOURCE", "TIMED_DATA_SOURCE", "ON_ERROR_DATA_SOURCE", "TRANSFORM", "DATA_SINK"]
FLOW_TYPES: Final[tuple[FlowType, ...]] = get_args(FlowType)
ActionKind = Literal["rows", "sql", "dataframe"]
ACTION_KINDS: Final[tuple[ActionKind, ...]] = get_args(ActionKind)
OnLoss = Literal["fail", "skip"]
CHECKPOINTS: Final = "forebay-data/checkpoints"
"""Where Spark keeps its own notes of flows, below the current folder."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a flow."""

    name: str
    kind: ActionKind
    text: str
    """The function as `module:name`, or the SQL."""
    schema: str | None = None
    """Of `rows`: the columns that the function adds, as in `total DOUBLE, day DATE`."""
    line: int = 0
    column: int = 0


class QueueSource(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that a flow reads as a consumer group."""

    queue: str
    group: str
    start: Literal["earliest", "latest"] = "earliest"
    """Where the group begins when it is made."""
    rows_max: int = 10_000
    """Rows of a batch at most."""
    on_loss: OnLoss = "fail"
    """What becomes of messages that were dropped before the flow came to them."""


class TimedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is called at every tick, and returns rows or a DataFrame."""

    function: str


class LetterSource(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of the queues and groups whose names match; `*` stands for any characters."""

    dead: str
    group: str = "*"
    rows_max: int = 10_000


Source = QueueSource | TimedSource | LetterSource


class QueueSink(msgspec.Struct, frozen=True, kw_only=True):
    """The queue that rows go to."""

    queue: str


class DestinationSink(QueueSink, frozen=True, kw_only=True):
    """The queue that rows go to, and the destination that its messages are delivered to.

    It says nothing of secrets: `PipelineSpec.deliveries` has the settings.
    """

    group: str
    """The consumer group that is delivered."""
    url: str
    """Where the destination is, without secrets."""
    host: str


class ParquetSink(msgspec.Struct, frozen=True, kw_only=True):
    """The folder that rows go to, as Parquet files."""

    folder: str
    partition_by: tuple[str, ...] = ()


Sink = QueueSink | ParquetSink


class FlowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One flow."""

    name: str
    type: FlowType
    source: Source
    sink: Sink
    actions: tuple[Action, ...] = ()
    every: float = 1.0
    """Seconds between the beginnings of two batches, or between two ticks."""
    once: bool = False
    """It ends when everything that was there at its beginning is done."""
    max_attempts: int = 3
    """How often a row, or a batch, is tried before what fails is given up."""
    contract: str | None = None
    """A file by which the fields of messages become columns."""
    line: int = 0
    column: int = 0

    @property
    def last_action(self) -> str:
        """What the header `action` of its messages says."""
        return self.actions[-1].name if self.actions else ""

    @property
    def labels(self) -> dict[str, str]:
        """The headers by which its messages are known in the metrics of queues."""
        found = {"flow": self.name, "flow_type": self.type, "action": self.last_action}
        return {name: value for name, value in found.items() if value}

    @property
    def reads_as(self) -> dict[str, str]:
        """The same for messages that wait for it: the action is the first one."""
        return self.labels | ({"action": self.actions[0].name} if self.actions else {})

    @property
    def failed_queue(self) -> str:
        """The queue whose dead letters its rows become when they fail, unless it reads a queue."""
        return f"{self.name}-failed"

    @property
    def delivery_name(self) -> str:
        """The delivery of its rows, for people; no flow can be called so. Empty where there is none."""
        return f"{self.name} → {self.sink.host}" if isinstance(self.sink, DestinationSink) else ""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it names."""
        ends = (self.source, self.sink)
        return tuple(end.queue for end in ends if isinstance(end, QueueSource | QueueSink))


class ArchiveSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is archived, where, and when."""

    path: str
    queues: tuple[str, ...] = ("*",)
    every: float = 300.0
    after: float = 300.0
    """Only what is at least so old, in seconds, and done with by all groups."""
    wait_max: float = 86_400.0
    """What is so old, in seconds, is archived in any case."""


class PipelineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a file of flows says."""

    file: str
    flows: tuple[FlowSpec, ...]
    store: str | None = None
    checkpoints: str = CHECKPOINTS
    archive: ArchiveSpec | None = None
    deliveries: dict[str, QueueDeliverySettings] = {}
    """By the name of the flow: how the rows of flows that end at a destination are delivered."""

    @property
    def folder(self) -> Path:
        """Where the file is: functions and contracts are looked for there."""
        return Path(self.file).resolve().parent
