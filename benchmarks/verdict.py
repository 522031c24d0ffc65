"""What a run must reach, and whether it did: functions on figures, without any measuring."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

Figure = bool | float | str | list[float]
"""One figure of a part; a list has one value per round."""
Figures = Mapping[str, Figure]
"""The figures of one part, by name."""

QUIET_TARGET: Final = 300_000
"""Messages a second that a log appends on a quiet machine. Reported, never required."""


class Requirement(msgspec.Struct, frozen=True):
    """A bound on one figure of one part."""

    part: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def bound(self) -> str:
        """Say the bound in words."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}"

    def is_met(self, value: Figure | None) -> bool:
        """Tell whether a value keeps the bound; what was not measured does not."""
        if isinstance(value, bool | str | list) or value is None:
            return False
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


REQUIREMENTS: Final = (
    Requirement("append", "ratio", at_least=8.0),
    Requirement("cycle", "ratio", at_least=10.0),
    Requirement("idle_in_transaction", "ratio", at_least=0.85),
    *(
        Requirement("backlog", f"{log}_{verb}_ratio", at_least=0.8)
        for log in ("sqlite", "postgres")
        for verb in ("append", "claim", "settle")
    ),
    Requirement("backlog", "sqlite_memory_growth_mb", at_most=50.0),
    Requirement("backlog", "postgres_memory_growth_mb", at_most=50.0),
)


def requirement_of(
    part: str, figure: str, requirements: Sequence[Requirement] = REQUIREMENTS
) -> Requirement | None:
    """Find the bound on a figure, if it has one."""
    found = (r for r in requirements if (r.part, r.figure) == (part, figure))
    return next(found, None)


def shortfalls(parts: Mapping[str, Figures], requirements: Sequence[Requirement] = REQUIREMENTS) -> list[str]:
    """Say which bounds are not kept, by the parts that were run."""
    return [
        f"{r.part}: {r.figure} is {_shown(parts[r.part].get(r.figure))}, {r.bound()} is required"
        for r in requirements
        if r.part in parts and not r.is_met(parts[r.part].get(r.figure))
    ]


def exit_status(missed: Sequence[str]) -> int:
    """Return 1 when anything falls short."""
    return 1 if missed else 0


def meets_quiet_target(rate: float) -> bool:
    """Tell whether a log appends as fast as it should on a quiet machine."""
    return rate >= QUIET_TARGET


def _shown(value: Figure | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
