"""Workers and queues that exist only on paper: a simulation of what the rule's plans lead to.

Time passes in small steps. A worker gives each free processor to the queue that has had the least of its
time, of those that have tasks and room in the plan; a batch is one task, and can't be interrupted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from forebay.work.allocation import Demand, Memory, Plan, Rule, Station, allocate

STEP = 0.1
ROUND = 2.0
RULE = Rule()
NOTHING = Memory()


@dataclass
class Desk:
    """One worker: what its processors are at, and until when."""

    station: Station
    busy: list[tuple[float, str]] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)


@dataclass
class Crowd:
    """All of it."""

    seconds: dict[str, float]
    """What a task takes, by queue."""
    desks: dict[str, Desk]
    rule: Rule = RULE
    weights: dict[str, float] = field(default_factory=dict)
    arrivals: dict[str, float] = field(default_factory=dict)
    """Tasks a second."""
    tasks: Counter[str] = field(default_factory=Counter)
    plan: Plan = field(default_factory=dict)
    memory: Memory = NOTHING
    now: float = 0.0
    moves: int = 0
    """How often the plan changed."""
    done: Counter[str] = field(default_factory=Counter)
    served_at: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    """The longest that a queue with tasks had no processor, in seconds."""
    random: Random = field(default_factory=lambda: Random(7))
    noise: float = 0.0

    def run(self, seconds: float) -> None:
        """Let time pass."""
        rounds_at = self.now
        until = self.now + seconds
        while self.now < until:
            if self.now >= rounds_at:
                self.manage()
                rounds_at += ROUND
            self._step()

    def manage(self) -> None:
        """One round of a Manager."""
        demands = {
            queue: Demand(
                tasks=self._seen(queue), seconds_per_task=seconds, weight=self.weights.get(queue, 1.0)
            )
            for queue, seconds in self.seconds.items()
        }
        stations = {name: desk.station for name, desk in self.desks.items()}
        plan, self.memory = allocate(
            demands, stations, plan=self.plan, memory=self.memory, now=self.now, rule=self.rule
        )
        self.moves += plan != self.plan
        self.plan = plan

    def total(self, queue: str) -> int:
        """How many processors a queue has in the plan."""
        return sum(given.get(queue, 0) for given in self.plan.values())

    def _seen(self, queue: str) -> int:
        busy = sum(at == queue for desk in self.desks.values() for _, at in desk.busy)
        return round((self.tasks[queue] + busy) * self.random.uniform(1 - self.noise, 1 + self.noise))

    def _step(self) -> None:
        self.now += STEP
        for queue, rate in self.arrivals.items():
            self.tasks[queue] += int(rate * self.now) - int(rate * (self.now - STEP))
        for name, desk in self.desks.items():
            desk.busy = [(end, queue) for end, queue in desk.busy if end > self.now]
            self._staff(name, desk)
        at_work = {queue for desk in self.desks.values() for _, queue in desk.busy}
        for queue in self.seconds:
            if queue in at_work or not self.tasks[queue]:
                self.served_at[queue] = self.now
            waited = self.now - self.served_at.setdefault(queue, self.now)
            self.waited[queue] = max(self.waited.get(queue, 0.0), waited)

    def _staff(self, name: str, desk: Desk) -> None:
        while len(desk.busy) < desk.station.processors:
            at = Counter(queue for _, queue in desk.busy)
            given = self.plan.get(name, desk.station.limits)
            open_queues = [queue for queue, most in given.items() if self.tasks[queue] and at[queue] < most]
            if not open_queues:
                return
            queue = min(open_queues, key=lambda queue: (desk.used[queue], queue))
            self.tasks[queue] -= 1
            self.done[queue] += 1
            desk.used[queue] += max(1, round(1000 * self.seconds[queue]))
            desk.busy.append((self.now + self.seconds[queue], queue))


def desk(processors: int, *queues: str, most: int = 100) -> Desk:
    """A worker with as many processors, for these queues."""
    return Desk(Station(processors=processors, limits=dict.fromkeys(queues, most)))
