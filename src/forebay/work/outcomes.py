"""Outcomes: what became of the tasks of a batch, gathered for one write. Clock and chance are passed in.

| a handler says | the task |
|---|---|
| nothing, `Done()` | is done |
| `RetryAfter(seconds)` | comes back then, an attempt more; a time that can't be is as good as raising |
| `Bury(reason)` | is a dead letter |
| raises | comes back after a pause that grows, an attempt more |
| either of both, `retries_max` times before | is a dead letter, and the reason says so |
| nothing, since it came back more often | is a dead letter, and no handler is called |

In an ordered queue a task that comes back holds up its partition: those that come after it go back along,
uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from forebay.model import Rejected
from forebay.store.values import Task
from forebay.work.backoff import gives_up, is_spent, pause_seconds
from forebay.work.settings import BindingSettings
from forebay.work.values import Bury, Done, RetryAfter

__all__ = ["Outcomes", "Rule", "named", "short", "text_of"]

SECOND: Final = 1_000_000
REASON_MAX: Final = 1_000
"""Characters of a reason that are kept."""
_WAIT_MAX: Final = 100 * 365 * 86_400


@dataclass(slots=True)
class Outcomes:
    """Ids of tasks, by what became of them; each at most once."""

    done: list[int] = field(default_factory=list)
    retried: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Back at a time (µs) for a reason."""
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

    def back(self) -> list[int]:
        """Those that come back."""
        return [*self.retried, *self.parked, *self.released]

    def bury(self, id: int, reason: str) -> None:
        """A task is a dead letter."""
        self.buried.setdefault(short(reason), []).append(id)

    def without(self, ids: Collection[int]) -> Outcomes:
        """The same of the other tasks."""
        return Outcomes(
            [id for id in self.done if id not in ids],
            {id: back for id, back in self.retried.items() if id not in ids},
            {id: at for id, at in self.parked.items() if id not in ids},
            {reason: [id for id in some if id not in ids] for reason, some in self.buried.items()},
            [id for id in self.released if id not in ids],
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """What is made of what handlers say: see the table above. `now` is in µs, `chance` 0 to 1."""

    settings: BindingSettings
    now: Callable[[], int]
    chance: Callable[[], float]

    def apply(self, outcomes: Outcomes, task: Task, outcome: object) -> None:
        """Add what a handler returned, or raised, for a task. Rejected if that can't become of it."""
        if outcome is None or isinstance(outcome, Done):
            outcomes.done.append(task.id)
        elif isinstance(outcome, RetryAfter):
            self._retry(outcomes, task, _checked(outcome.after), outcome.reason)
        elif isinstance(outcome, Bury):
            outcomes.bury(task.id, outcome.reason)
        elif isinstance(outcome, BaseException):
            self.fail(outcomes, [task], outcome)
        else:
            text = f"a handler returned {type(outcome).__name__}"
            raise Rejected(text, hint="return Done, RetryAfter, Bury or None")

    def fail(self, outcomes: Outcomes, tasks: Iterable[Task], error: BaseException | None) -> None:
        """Add that a handler failed on tasks, or, without an error, left them.

        In an ordered queue that is the fault of the first of each partition; the others were not reached.
        """
        said = "" if error is None else named(error)
        failed: set[str] = set()
        for task in sorted(tasks, key=lambda task: task.id):
            partition = task.lease.partition
            if partition is not None:
                if partition in failed:
                    outcomes.released.append(task.id)
                    continue
                failed.add(partition)
            pause = pause_seconds(self.settings.backoff, task.attempts, self.chance())
            self._retry(outcomes, task, pause, said)

    def sends_back(self, task: Task, outcome: object) -> bool:
        """Whether a task comes back by what a handler returned or raised."""
        if outcome is None:
            return False
        found = Outcomes()
        try:
            self.apply(found, task, outcome)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task has failed
            self.fail(found, [task], error)
        return bool(found.retried)

    def is_spent(self, task: Task) -> bool:
        """Whether a task isn't to be handled any more, as each time before nobody gave it up."""
        return is_spent(self.settings, task.attempts)

    def give_up(self, outcomes: Outcomes, task: Task) -> None:
        """Add that a task is spent."""
        text = f"came back {task.attempts} times, and may {self.settings.retries_max} times"
        outcomes.bury(task.id, text)

    def send_back(self, outcomes: Outcomes, task: Task, at: int, said: str = "") -> None:
        """Add that a task comes back at a time (µs), unless it was the last time."""
        if gives_up(self.settings, task.attempts):
            times = "once" if not task.attempts else f"{task.attempts + 1} times"
            outcomes.bury(task.id, f"failed {times}: {said}" if said else f"failed {times}")
        else:
            outcomes.retried[task.id] = (at, short(said))

    def _retry(self, outcomes: Outcomes, task: Task, seconds: float, said: str) -> None:
        self.send_back(outcomes, task, self.now() + round(seconds * SECOND), said)


def short(reason: object) -> str:
    """A reason that every store takes."""
    text = str(reason).replace("\0", "").encode(errors="replace").decode()
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def named(error: BaseException) -> str:
    """An error with all that it says."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """What an error says; nothing where it fails at that, too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is somebody else's code, and its task goes on as with any error
        return ""


def _checked(seconds: object) -> float:
    """A time to wait, or Rejected: what is no number, negative, endless, or too far away for a store."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _WAIT_MAX:
        text = f"a handler returned RetryAfter({seconds!r})"
        raise Rejected(text, hint="give seconds, from 0 to a hundred years")
    return seconds
