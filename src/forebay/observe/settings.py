"""The settings of metrics: how the snapshot of queues is made, kept and shown.

The names below `queue_snapshot` up to `keep_versions` are those of the design that Convoy's users know.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from forebay.model import Misconfigured
from forebay.observe.labels import LabelSettings
from forebay.observe.seed_names import NAMES
from forebay.observe.snapshot_store import KEEP_VERSIONS, PREFIX

__all__ = ["MetricsSettings", "SnapshotSettings"]

_DURATION: Final = {"kind": "duration"}
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0, extra=_DURATION)]
_Url: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:valkeys?|rediss?|unix)://.", description="an address like valkey://host:6379/0"
    ),
]


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the snapshot of queues is made and kept."""

    refresh_interval: _Seconds = 5.0
    """How often it is published."""
    rich_interval: _Seconds = 15.0
    """How often `forebay snapshot run` folds the rich series on Spark, and publishes them."""
    lock_ttl: _Seconds = 30.0
    """How long other servers wait for one that publishes and is no longer heard of."""
    max_staleness: _Seconds = 60.0
    """How old it may get before it is marked as stale, and how long a refresh may take."""
    redis_prefix: Annotated[str, msgspec.Meta(pattern=r"^\S+$", description="the begin of a key")] = PREFIX
    """What its keys in Valkey begin with."""
    keep_versions: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = KEEP_VERSIONS
    """How many versions are kept, the current one included."""
    url: _Url | None = None
    """The Valkey that it is in; none for the shared warm tier, or for a folder where there is none."""
    checkpoint: Annotated[str, msgspec.Meta(min_length=1, description="the path of a folder")] | None = None
    """Where Spark keeps what it has folded; none for `snapshot/fold` in the data folder."""
    labels: LabelSettings = LabelSettings()
    leader_only: bool = False
    """Show the series of queues only where they were counted, so that sums over servers count once."""

    @property
    def rich_staleness(self) -> float:
        """How old the part of Spark may get before it is marked as stale: it is made again less often."""
        return self.rich_interval + self.max_staleness

    def __post_init__(self) -> None:
        """Refuse what would always be stale."""
        if self.max_staleness <= self.refresh_interval:
            raise Misconfigured(
                f"max_staleness is {self.max_staleness:g} s, no longer than refresh_interval",
                hint=f"set it to more than {self.refresh_interval:g}s",
                key="max_staleness",
            )


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about queues, for Prometheus and for the page."""

    names: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=len(NAMES))] = ("forebay",)
    """Whose names `/metrics` has: any of forebay, convoy, deltafi and queen."""
    queue_snapshot: SnapshotSettings = SnapshotSettings()
    plugins: dict[str, str] = {}
    """The plugin that provides the action class of a queue, by queue; shown beside it."""
    contracts: tuple[str, ...] = ()
    """Files of contracts: their queues are shown as provided by `<name of the file>:<version>`."""

    def __post_init__(self) -> None:
        """Refuse names that nobody has."""
        for name in self.names:
            if name not in NAMES:
                hint = f"write any of {', '.join(NAMES)}"
                raise Misconfigured(f"metrics have no names of {name!r}", hint=hint, key="names")
