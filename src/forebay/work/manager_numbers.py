"""What a Manager counts, for Prometheus.

Invariants: who doesn't lead says so, also when its lead has ended while its rounds failed, and has no plan to
show; labels are the queues that workers serve, of which there is a bounded number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.registry import Collector

from forebay.observe.shown_metrics import ShownMetric, shown_number, shown_numbers
from forebay.work.allocation import Plan
from forebay.work.board import LEAD_SECONDS

__all__ = ["ManagerNumbers"]

_RESULTS: Final = ("led", "stood_by", "failed")


class ManagerNumbers(Collector):
    """See the module. `elapsed` tells seconds."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._rounds: Counter[str] = Counter()
        self._instructions = 0
        self._changes = 0
        self._led_at: float | None = None
        self._plan: Plan = {}

    def led(self, plan: Plan, began: float) -> None:
        """Count a round in which workers were told what to do; its lead counts from when it began."""
        self._rounds["led"] += 1
        self._instructions += len(plan)
        self._changes += plan != self._plan
        self._plan, self._led_at = plan, began

    def stood_by(self) -> None:
        """Count a round in which another led."""
        self._rounds["stood_by"] += 1
        self.resigned()

    def failed(self) -> None:
        """Count a round that changed nothing."""
        self._rounds["failed"] += 1

    def resigned(self) -> None:
        """It doesn't lead."""
        self._plan, self._led_at = {}, None

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        leads = self._led_at is not None and self._elapsed() - self._led_at < LEAD_SECONDS
        plan = self._plan if leads else {}
        told: Counter[str] = Counter()
        for given in plan.values():
            told.update(given)
        yield shown_number("forebay_manager_leading", int(leads))
        rounds = [((result,), self._rounds[result]) for result in _RESULTS]
        yield shown_numbers("forebay_manager_rounds_total", rounds)
        yield shown_number("forebay_manager_instructions_total", self._instructions)
        yield shown_number("forebay_manager_plan_changes_total", self._changes)
        yield shown_number("forebay_manager_workers", len(plan))
        wanted = [((queue,), count) for queue, count in sorted(told.items())]
        yield shown_numbers("forebay_manager_processors_wanted", wanted)
