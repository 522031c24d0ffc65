"""The settings of a send queue: how much it holds, how safe it is, and how it is emptied.

The names and defaults are those of metrics-governor's `exporter.queue` section, so that its files work
here. Beyond it: `durability`, `format`, `order`, `block_timeout`, `stale_flush_interval`,
`dead_size_max` and `dead_bytes_max`.
"""

import os
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from forebay.deliver.dead_letters import DEAD_BYTES, DEAD_SIZE
from forebay.deliver.order import Order
from forebay.model import Misconfigured

__all__ = [
    "AdaptiveWorkerSettings",
    "BackoffSettings",
    "BreakerSettings",
    "PipelineSettings",
    "SendQueueSettings",
]

_SIZE: Final = {"kind": "size"}
_DURATION: Final = {"kind": "duration"}
_Workers: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.001, le=86_400.0, extra=_DURATION)]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class BackoffSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pause before a retry grows."""

    enabled: bool = True
    """Pauses grow with each failure; otherwise every pause is `retry_interval`."""
    multiplier: Annotated[float, msgspec.Meta(ge=1.0, le=100.0)] = 2.0
    """How many times longer each pause is than the one before."""


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a destination that fails is left alone."""

    enabled: bool = True
    """Leave a failing destination alone for a while."""
    threshold: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5
    """Failures in a row that open the breaker."""
    reset_timeout: _Seconds = 30.0
    """How long the breaker stays open before one request tries again."""


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Preparing requests and sending them in tasks of their own."""

    enabled: bool = False
    """Prepare and send apart; otherwise each worker does both."""
    preparer_count: _Workers = 0
    """Threads that prepare; 0 for one per CPU."""
    sender_count: _Workers = 0
    """Tasks that send; 0 for two per CPU."""
    channel_size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 256
    """Prepared requests that may wait for a sender."""


class AdaptiveWorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """As many workers as the backlog and the latency ask for."""

    enabled: bool = False
    """Change the number of workers while the relay runs."""
    min_workers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """The fewest."""
    max_workers: _Workers = 0
    """The most; 0 for four per CPU."""

    def __post_init__(self) -> None:
        """Refuse a most that is less than the fewest."""
        if 0 < self.max_workers < self.min_workers:
            raise Misconfigured(
                f"max_workers is {self.max_workers}, less than min_workers",
                hint=f"set it to {self.min_workers} or more, or to 0",
                key="max_workers",
            )


class SendQueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What lies between a push and its destination."""

    type: Literal["disk", "memory"] = "disk"
    """Where entries are kept; what is in memory is lost with the process."""
    enabled: bool = True
    """Keep entries; otherwise a push is answered with what the destination says."""
    path: Annotated[str, msgspec.Meta(min_length=1, description="the path of a folder")] = "./queue"
    """The folder of the queues, one folder in it for each destination."""
    max_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 10_000
    """Entries that a queue holds."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 60, extra=_SIZE)] = 1 << 30
    """Bytes that a queue holds, before compression."""
    full_behavior: Literal["drop_oldest", "drop_newest", "block"] = "drop_oldest"
    """A full queue drops its oldest entry, refuses the new one, or lets the pusher wait."""
    block_timeout: _Seconds = 30.0
    """How long `block` waits for room, and how long an entry that the disk refuses waits in memory."""
    durability: Literal["always", "interval", "memory"] = "always"
    """Safe before the push is answered; within `meta_sync_interval`; or not synced at all."""
    format: Literal["native", "governor"] = "native"
    """The format of the files: Forebay's own, or metrics-governor's, which has no checksums."""
    order: Order = "auto"
    """Deliver in the order of pushing, one at a time: all entries, none, or remote writes alone (auto)."""
    inmemory_blocks: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 2048
    """Entries that are kept in memory beside the disk."""
    chunk_size: Annotated[int, msgspec.Meta(ge=1 << 12, le=1 << 40, extra=_SIZE)] = 512 << 20
    """The size at which a new file is begun."""
    meta_sync_interval: _Seconds = 1.0
    """How often the position of the reader is written, and what `interval` may lose."""
    stale_flush_interval: _Seconds = 30.0
    """How long an entry may stay in memory only; with `always` none does."""
    write_buffer_size: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 30, extra=_SIZE)] = 256 << 10
    """Bytes that are gathered for one write."""
    compression: Literal["snappy", "none"] = "snappy"
    """How entries are compressed on disk."""
    always_queue: bool = True
    """Every entry goes through the queue; otherwise it is sent first, and queued if that fails."""
    dead_size_max: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = DEAD_SIZE
    """Dead letters of a destination that are kept; the oldest makes room for a new one, and is counted."""
    dead_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=1 << 60, extra=_SIZE)] = DEAD_BYTES
    """Bytes of dead letters that are kept, before compression."""
    workers: _Workers = 0
    """Tasks that send; 0 for two per CPU."""
    retry_interval: _Seconds = 5.0
    """The pause before the first retry."""
    max_retry_delay: _Seconds = 300.0
    """The longest pause before a retry, whatever the destination asks for."""
    memory_percent: _Share = 0.10
    """The share of usable memory that entries may take, where the container has a limit; 0 for any."""
    memory_limit_ratio: _Share = 0.85
    """The share of the container's memory limit that is usable."""
    adaptive_enabled: bool = True
    """Lower `max_bytes` to what the disk has room for."""
    target_utilization: _Share = 0.85
    """The share of the disk's free space that a queue may fill."""
    max_concurrent_sends: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 4
    """Requests that one sender of the pipeline has under way."""
    global_send_limit: _Workers = 0
    """Requests under way to all destinations together; 0 for eight per CPU."""
    backoff: BackoffSettings = BackoffSettings()
    circuit_breaker: BreakerSettings = BreakerSettings()
    pipeline_split: PipelineSettings = PipelineSettings()
    adaptive_workers: AdaptiveWorkerSettings = AdaptiveWorkerSettings()

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.max_retry_delay < self.retry_interval:
            raise Misconfigured(
                "max_retry_delay is less than retry_interval",
                hint="raise it, or lower retry_interval",
                key="max_retry_delay",
            )

    def resolve(self, cpus: int | None = None) -> "SendQueueSettings":
        """The same settings with a number in place of each 0 that stands for some per CPU."""
        cores = cpus or os.cpu_count() or 1
        replace = msgspec.structs.replace
        split, adaptive = self.pipeline_split, self.adaptive_workers
        most = adaptive.max_workers or 4 * cores
        return replace(
            self,
            workers=self.workers or 2 * cores,
            global_send_limit=self.global_send_limit or 8 * cores,
            pipeline_split=replace(
                split,
                preparer_count=split.preparer_count or cores,
                sender_count=split.sender_count or 2 * cores,
            ),
            adaptive_workers=replace(adaptive, max_workers=max(most, adaptive.min_workers)),
        )
