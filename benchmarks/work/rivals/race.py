"""What every rival's program shares: its arguments, the count of its calls, the time, its one line of output.

Only what Python has itself is imported here: a rival runs in an environment of its own. The time is that of
putting all tasks, and from the moment the worker is ready until the last call: what a rival does about a task
after its call, such as to acknowledge it, is not in it for the last ones.
"""

import argparse
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event
from time import perf_counter


class Race:
    """One run of one rival: `enqueueing`, then `ready`, then `ran` in each call, and `finish`."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--tasks", type=int, required=True)
        parser.add_argument("--broker", required=True, help="the address of a server, or a file")
        parser.add_argument("--kind", default="", help="which of several ways, where there are several")
        options = parser.parse_args()
        logging.disable(logging.WARNING)
        self.tasks: int = options.tasks
        self.broker: str = options.broker
        self.kind: str = options.kind
        self.over = Event()
        self._when_over: Callable[[], object] = bool
        self._calls = count(1)
        self._put_seconds = self._ready_at = self._ended_at = 0.0

    def when_over(self, callback: Callable[[], object]) -> None:
        """Have this called, in the thread of the last call, when all tasks have run."""
        self._when_over = callback

    @contextmanager
    def enqueueing(self) -> Iterator[range]:
        """All tasks are put in here; gives their numbers."""
        start = perf_counter()
        yield range(self.tasks)
        self._put_seconds = perf_counter() - start

    def ready(self) -> None:
        """The worker begins to take tasks."""
        self._ready_at = perf_counter()

    def ran(self) -> None:
        """A task has been called. The count is one step of the interpreter: threads may share it."""
        if next(self._calls) == self.tasks:
            self._ended_at = perf_counter()
            self.over.set()
            self._when_over()

    def finish(self, setting: str) -> None:
        """Print how it went, once all tasks have run."""
        assert self._ended_at, "not all tasks have run"
        assert next(self._calls) == self.tasks + 1, "some tasks have run twice"
        seconds = self._put_seconds + self._ended_at - self._ready_at
        report = {"tasks": self.tasks, "put": self._put_seconds, "seconds": seconds, "setting": setting}
        print(json.dumps(report), flush=True)
