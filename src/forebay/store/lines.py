"""Lines of those who wait for one partition: each exists while somebody takes from its partition.

Invariants: whoever waits for a partition is woken by what is about it, and by nothing else; what is done for
one line costs the same however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from forebay.store.waiting import Line

OVER_MAX: Final = 1_000
"""So many times that are over may be remembered, beside as many as there are lines."""


class _Named:
    """A line, how many use it, and when something of its partition is due."""

    __slots__ = ("due_at", "line", "users")

    def __init__(self) -> None:
        self.line = Line()
        self.users = 0
        self.due_at: int | None = None


class Lines:
    """See the module; those of one window."""

    def __init__(self) -> None:
        self._named: OrderedDict[str, _Named] = OrderedDict()
        self._times: list[tuple[int, str]] = []
        """When something is due, as a heap; some are over."""

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._named)

    def open(self, partition: str) -> Line:
        """The line of a partition, for one taker more."""
        named = self._named.setdefault(partition, _Named())
        named.users += 1
        return named.line

    def close(self, partition: str) -> None:
        """One taker less."""
        named = self._named[partition]
        named.users -= 1
        if not named.users:
            del self._named[partition]

    def wake(self, partitions: Iterable[str] | None) -> None:
        """There may be something in these partitions (None: in any); their first takers look."""
        for partition in list(self._named) if partitions is None else partitions:
            if (named := self._named.get(partition)) is not None:
                named.line.wake_first()

    def wake_all(self) -> None:
        """Wake up everybody: there is nothing to wait for any more."""
        for named in list(self._named.values()):
            named.line.wake_all()

    def wake_some(self, count: int) -> None:
        """Let so many lines look, which have not been let for longest."""
        for _ in range(min(count, len(self._named))):
            partition, named = next(iter(self._named.items()))
            self._named.move_to_end(partition)
            named.line.wake_first()

    def come_due(self, partition: str, due_at: int) -> None:
        """Something of a partition is due at a time."""
        named = self._named.get(partition)
        if named is None or (named.due_at is not None and named.due_at <= due_at):
            return
        named.due_at = due_at
        if len(self._times) > 2 * len(self._named) + OVER_MAX:
            self._times = [(n.due_at, p) for p, n in self._named.items() if n.due_at is not None]
            heapify(self._times)
        else:
            heappush(self._times, (due_at, partition))

    def wake_due(self, now: int) -> None:
        """Wake up those for whom something is due."""
        while (due_at := self.next_due_at) is not None and due_at <= now:
            partition = heappop(self._times)[1]
            self._named[partition].due_at = None
            self.wake([partition])

    @property
    def next_due_at(self) -> int | None:
        """When something is due for anybody."""
        while self._times:
            due_at, partition = self._times[0]
            named = self._named.get(partition)
            if named is not None and named.due_at == due_at:
                return due_at
            heappop(self._times)
        return None
