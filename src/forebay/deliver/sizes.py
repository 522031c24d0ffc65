"""How large a queue may be, from the memory and the disk that there are; pure but for `memory_limit`.

The drain formula is metrics-governor's: workers divided by the latency of a send is what leaves in a second.
"""

from pathlib import Path
from typing import Final

import msgspec

from forebay.deliver.queue_settings import SendQueueSettings

__all__ = ["MEMORY_BYTES", "Plan", "Sizes", "memory_limit", "plan", "sizes"]

MEMORY_BYTES: Final = 100_000_000
"""Memory for entries where nothing limits it."""
_MEMORY_BYTES_MIN: Final = 1 << 20
_UNLIMITED: Final = 1 << 60
"""Version 1 of cgroups writes no limit as a number near 2**63."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_SELF: Final = Path("/proc/self/cgroup")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a queue."""

    max_size: int
    max_bytes: int
    memory_bytes: int
    """Of these bytes, those that are in memory at one time."""


def sizes(
    settings: SendQueueSettings,
    *,
    memory_limit: int | None,
    disk_bytes: int | None,
    destinations: int = 1,
    dead_bytes: int = 0,
) -> Sizes:
    """Apply percentages to what there is: all destinations of a process share it evenly.

    `disk_bytes` is what is free and what their queues and dead letters have already, `dead_bytes` what the
    dead letters of this one have.
    """
    memory = MEMORY_BYTES // destinations
    if memory_limit is not None and settings.memory_percent:
        share = memory_limit * settings.memory_limit_ratio * settings.memory_percent / destinations
        memory = max(_MEMORY_BYTES_MIN, int(share))
    most = settings.max_bytes
    if settings.type == "memory":
        if memory_limit is not None and settings.memory_percent:
            most = min(most, memory)
        memory = most
    elif settings.adaptive_enabled and disk_bytes is not None:
        share = disk_bytes * settings.target_utilization / destinations
        most = min(most, max(1, int(share) - dead_bytes))
    return Sizes(max_size=settings.max_size, max_bytes=most, memory_bytes=min(memory, most))


def memory_limit(root: Path = _CGROUP, membership: Path = _SELF) -> int | None:
    """The lowest memory limit of the cgroups that this process is in, of version 2 or 1; none without one."""
    found = [limit for path in _limit_files(root, membership) if (limit := _read_limit(path)) is not None]
    return min(found, default=None)


def _limit_files(root: Path, membership: Path) -> list[Path]:
    """The files that may hold a limit: of the group itself, and of each group above it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    files = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
        for depth in range(1, len(parts) + 1):
            folder = Path(*parts[:depth])
            if not controllers:
                files.append(root / folder / "memory.max")
            elif "memory" in controllers.split(","):
                files.append(root / "memory" / folder / "memory.limit_in_bytes")
    return files


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    if not (text.isascii() and text.isdigit()):  # version 2 writes "max"
        return None
    return value if 0 < (value := int(text)) < _UNLIMITED else None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of a relay of some size, and the time until it is empty again."""

    memory_bytes: int
    """Capacity in memory: blocks times the average entry, within the memory that there is."""
    disk_bytes: int
    """Capacity on disk."""
    entries: int
    """Entries that fit, by number and by bytes."""
    drain_per_second: float
    """Entries that leave in a second."""
    drain_seconds: float
    """How long a full queue takes to empty while nothing comes in; endless where nothing leaves."""
    catch_up_seconds: float | None
    """The same while entries go on coming in; none where they come faster than they leave."""
    outage_seconds: float | None
    """How long an outage may last before the queue is full; none where nothing comes in."""


def plan(
    settings: SendQueueSettings,
    limits: Sizes,
    *,
    entry_bytes: int,
    latency_seconds: float,
    arriving_per_second: float = 0.0,
) -> Plan:
    """The sizing formula. `settings` are resolved: they have a number of workers."""
    entries = min(limits.max_size, limits.max_bytes // max(1, entry_bytes))
    leaving = settings.workers / latency_seconds
    spare = leaving - arriving_per_second
    return Plan(
        memory_bytes=min(settings.inmemory_blocks * entry_bytes, limits.memory_bytes),
        disk_bytes=limits.max_bytes,
        entries=entries,
        drain_per_second=leaving,
        drain_seconds=entries / leaving,
        catch_up_seconds=entries / spare if spare > 0 else None,
        outage_seconds=entries / arriving_per_second if arriving_per_second > 0 else None,
    )
