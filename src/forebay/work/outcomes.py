"""Outcomes: what became of the tasks of a batch, gathered for one write. Clock and chance are passed in.

| a handler says | the task |
|---|---|
| nothing, `Done()` | is done |
| `RetryAfter(seconds)` | comes back then, an attempt more |
| `Bury(reason)` | is a dead letter |
| raises | comes back after a pause that grows, an attempt more |
| either of both, `retries_max` times before | is a dead letter, and the reason says so |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from forebay.model import Rejected
from forebay.store.values import Task
from forebay.work.backoff import gives_up, pause_seconds
from forebay.work.settings import BindingSettings
from forebay.work.values import Bury, Done, RetryAfter

__all__ = ["Outcomes", "Rule", "short"]

SECOND: Final = 1_000_000
REASON_MAX: Final = 1_000
"""Characters of a reason that are kept."""


@dataclass(slots=True)
class Outcomes:
    """Ids of tasks, by what became of them; each at most once."""

    done: list[int] = field(default_factory=list)
    retried: dict[int, int] = field(default_factory=dict)
    """Back at a time (µs)."""
    parked: dict[int, int] = field(default_factory=dict)
    """Back at a time, and no attempt."""
    buried: dict[str, list[int]] = field(default_factory=dict)
    """By reason."""
    released: list[int] = field(default_factory=list)
    """Back at once, and no attempt."""

    def ids(self) -> list[int]:
        """All tasks that they are about."""
        buried = [id for ids in self.buried.values() for id in ids]
        return [*self.done, *self.retried, *self.parked, *buried, *self.released]

    def bury(self, id: int, reason: str) -> None:
        """A task is a dead letter."""
        self.buried.setdefault(short(reason), []).append(id)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is made of what handlers say: see the table above. `now` is in µs, `chance` 0 to 1."""

    settings: BindingSettings
    now: Callable[[], int]
    chance: Callable[[], float]

    def apply(self, outcomes: Outcomes, task: Task, outcome: object) -> None:
        """Add what a handler returned, or raised, for a task. Rejected if it is none of the outcomes."""
        if outcome is None or isinstance(outcome, Done):
            outcomes.done.append(task.id)
        elif isinstance(outcome, RetryAfter):
            self._retry(outcomes, task, outcome.after, "")
        elif isinstance(outcome, Bury):
            outcomes.bury(task.id, outcome.reason)
        elif isinstance(outcome, BaseException):
            self.fail(outcomes, [task], outcome)
        else:
            text = f"a handler returned {type(outcome).__name__}"
            raise Rejected(text, hint="return Done, RetryAfter, Bury or None")

    def fail(self, outcomes: Outcomes, tasks: Iterable[Task], error: BaseException | None) -> None:
        """Add that a handler failed on tasks, or, without an error, left them."""
        said = "" if error is None else f": {_named(error)}"
        for task in tasks:
            pause = pause_seconds(self.settings.backoff, task.attempts, self.chance())
            self._retry(outcomes, task, pause, said)

    def _retry(self, outcomes: Outcomes, task: Task, seconds: float, said: str) -> None:
        if gives_up(self.settings, task.attempts):
            times = "once" if not task.attempts else f"{task.attempts + 1} times"
            outcomes.bury(task.id, f"failed {times}{said}")
        else:
            outcomes.retried[task.id] = self.now() + round(max(0.0, seconds) * SECOND)


def short(reason: object) -> str:
    """A reason that every store takes."""
    text = str(reason).replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def _named(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
