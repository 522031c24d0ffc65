"""What failover can be told."""

from typing import Annotated, TypeAlias

import msgspec

from forebay.spool.settings import SpoolSettings

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.001, le=86_400)]


class FailoverSettings(SpoolSettings, frozen=True, kw_only=True):
    """When the spool is used, and how it is replayed; how its files are written, too."""

    attempt_seconds: _Seconds = 2.0
    """How long the log is waited for before a push goes to the spool."""
    flush_seconds: _Seconds = 0.1
    """How often the spool is looked at for something to replay, and how long pushes with QoS 0 gather."""
    batch_events_max: _Count = 10_000
    """Events that are replayed in one commit; a block is never divided."""
    retry_seconds: _Seconds = 5.0
    """How often what the log refused is tried again."""
    startup_seconds_max: _Seconds = 3_600.0
    """How long the replay of what was there at the start may take before a warning says so."""
