"""How this process is: time on the processor, and memory, as the system tells it."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

_SECOND: Final = 1_000_000
_KIBIBYTE: Final = 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = Path("/proc/self/statm")


class Vitals(NamedTuple):
    """Since the process began: microseconds on the processor. At present: bytes of memory."""

    user_us: int
    system_us: int
    rss: int
    virtual: int


def vitals() -> Vitals:
    """How this process is now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    rss, virtual = _memory(used.ru_maxrss * _KIBIBYTE)
    return Vitals(round(used.ru_utime * _SECOND), round(used.ru_stime * _SECOND), rss, virtual)


def _memory(most: int) -> tuple[int, int]:
    """Resident and virtual; where the system has no /proc, the most that was ever resident, and 0."""
    try:
        virtual, rss = map(int, _STATM.read_bytes().split()[:2])
    except OSError:
        return most, 0
    return rss * _PAGE, virtual * _PAGE
