"""How far something long has come: a bar on a terminal, and a line now and then elsewhere.

Invariants: it goes to standard error; a rate is over the whole time; nobody waits for it to be drawn.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from forebay.app.commands.output import age_text, warn

__all__ = ["LINE_SECONDS", "Meter", "shown"]

LINE_SECONDS: Final = 5.0
"""How often a line is printed where there is no terminal."""


class Meter:
    """Counts towards a total; `unit` is what is counted."""

    def __init__(
        self, what: str, total: int, unit: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.changed: Callable[[], None] = lambda: None
        """Called after each step, by whoever shows it."""
        self._unit = unit
        self._now = now
        self._began = now()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._now() - self._began

    def add(self, count: int) -> None:
        """Go on."""
        self.done += count
        self.changed()

    def text(self) -> str:
        """How far it is: done of total, per second, time left."""
        seconds = max(self.seconds, 1e-6)
        rate = self.done / seconds
        parts = [f"{self.done:,} of {self.total:,} {self._unit}", f"{rate:,.0f}/s"]
        if 0 < self.done < self.total:
            parts.append(f"{age_text((self.total - self.done) / rate)} left")
        return ", ".join(parts)


@contextmanager
def shown(meter: Meter) -> Iterator[None]:
    """Show a meter for as long as it lasts."""
    if not sys.stderr.isatty():
        meter.changed = _lines(meter)
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(meter.what, total=meter.total, text=meter.text())
        meter.changed = _drawing(meter, progress, bar)
        yield


def _drawing(meter: Meter, progress: Progress, bar: TaskID) -> Callable[[], None]:
    return lambda: progress.update(bar, completed=meter.done, total=meter.total, text=meter.text())


def _lines(meter: Meter) -> Callable[[], None]:
    """Prints a line every few seconds, and none for what is quick."""
    due = LINE_SECONDS

    def changed() -> None:
        nonlocal due
        if meter.seconds >= due:
            due = meter.seconds + LINE_SECONDS
            warn(f"{meter.what}: {meter.text()}")

    return changed
