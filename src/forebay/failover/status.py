"""What failover shows of itself, to metrics, health and people."""

from collections.abc import Mapping

import msgspec


class SpoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the log is there, and what waits for it, at one moment. Counts are of events."""

    healthy: bool
    """Whether pushes go to the log."""
    reason: str | None
    """Why not."""
    since: int
    """Since when (µs)."""
    held: str | None = None
    """Why pushes are held back in the spool although the log may be there, if they are."""
    refused: str | None = None
    """Why the spool takes no more messages, if it doesn't."""
    pending: int
    """Messages that were accepted and are not in the log yet."""
    flushed: int
    """Messages that came from the spool to the log, since the start."""
    rate: float = 0.0
    """Messages that come from the spool to the log in a second, over the last 10 seconds."""
    seconds_left: float | None = 0.0
    """How long what is pending takes at that rate; null while nothing is replayed."""
    failed: int
    """Messages and settlements that were set aside: in the folder `failed`."""
    settlements: int
    """Tasks whose outcomes wait for the log; of what was there at the start, the calls that settled some."""
    settled: int = 0
    """Tasks whose outcomes were answered while the log was away, since the start."""
    late: int = 0
    """Tasks whose outcome came to the log too late, and lost: others had settled them, or had them."""
    files: int
    bytes: int
    """Bytes of the files on disk."""
    queues: Mapping[str, int]
    """What is pending, by queue, as far as it was looked at: what was there at the start counts as read."""
    outages: int
    """How often the log was lost, since the start."""
