"""Sources for takers that don't take what comes: from one partition, or from few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from forebay.store.wishes import Wish

if TYPE_CHECKING:
    from forebay.store.lease_renewal import Renewal
    from forebay.store.values import Task
    from forebay.store.waiting import Line, Source
    from forebay.store.window import Window


class OfPartition:
    """One partition of a window, for one taker: it waits in a line of its own, which goes with the last."""

    def __init__(self, window: Window, partition: str) -> None:
        self.turn = 0
        self._window = window
        self._partition = partition
        self.line: Line = window.lines.open(partition)
        self._news = self.line.news

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._news != self.line.news:
            self.line.wake_first()  # there was news for whoever looks next
        self._window.lines.close(self._partition)

    @property
    def is_closed(self) -> bool:
        """Whether there will never be anything again."""
        return self._window.is_closed

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        return self._window.is_paused

    async def grab(self, count: int, worker: str, seconds: float) -> list[Task]:
        """Take what is there, here and in the log, up to `count`."""
        self._news = self.line.news
        return await self._window.grab_partition(Wish(count, worker, seconds, self._partition))

    async def ask(self) -> None:
        """Nothing more: who grabs asks the log."""

    async def bring(self) -> bool:
        """Nothing more, see `ask`."""
        return False

    def keep(self, tasks: Sequence[Task], seconds: float) -> Renewal:
        """Keep the leases of tasks that are not answered yet."""
        return self._window.keep(tasks, seconds)

    async def confirm(self, tasks: list[Task], seconds: float, age: float) -> list[Task]:
        """Tasks with all of their time before them."""
        return await self._window.confirm(tasks, seconds, age)

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Have tasks that reached nobody made ready again."""
        self._window.give_back(tasks)


class Allowance:
    """From how many more partitions one call may take, of whatever queues."""

    def __init__(self, partitions_max: int) -> None:
        self.left = partitions_max


class FewPartitions:
    """A window of which tasks of few partitions are taken."""

    def __init__(self, window: Window, allowance: Allowance) -> None:
        self.turn = 0
        self.line = window.line
        self._window = window
        self._allowance = allowance

    @property
    def is_closed(self) -> bool:
        """Whether there will never be anything again."""
        return self._window.is_closed

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        return self._window.is_paused

    async def grab(self, count: int, worker: str, seconds: float) -> list[Task]:
        """Take what is there of as many partitions as are left, up to `count`."""
        if not self._allowance.left:
            return []
        wish = Wish(count, worker, seconds, partitions_max=self._allowance.left)
        tasks = await self._window.grab_wish(wish)
        self._allowance.left -= len({task.partition for task in tasks})
        return tasks

    async def ask(self) -> None:
        """Bring what the log has by now."""
        await self._window.ask()

    async def bring(self) -> bool:
        """Bring what the log is thought to have, if anything."""
        return await self._window.bring()

    def keep(self, tasks: Sequence[Task], seconds: float) -> Renewal:
        """Keep the leases of tasks that are not answered yet."""
        return self._window.keep(tasks, seconds)

    async def confirm(self, tasks: list[Task], seconds: float, age: float) -> list[Task]:
        """Tasks with all of their time before them."""
        return await self._window.confirm(tasks, seconds, age)

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Have tasks that reached nobody made ready again."""
        self._window.give_back(tasks)


@contextmanager
def picked(
    windows: Sequence[Window], partition: str | None, partitions_max: int | None
) -> Iterator[Sequence[Source]]:
    """What one call takes from: the windows, or what it wants of them."""
    if partition is not None:
        with OfPartition(windows[0], partition) as source:
            yield [source]
    elif partitions_max is not None:
        allowance = Allowance(partitions_max)
        yield [FewPartitions(window, allowance) for window in windows]
    else:
        yield windows
