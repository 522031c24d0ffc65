"""The window: entries of a queue that are in memory, and which of them is next.

The lowest sequence number that is ready goes first, so an entry that comes back keeps its place in line.
Ordered entries are in a line of their own, of which only the first is ever handed out.
Invariant: an entry is in exactly one of ready, delayed and leased until it is settled.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice

from forebay.deliver.entry import Entry, EntryState

__all__ = ["Window"]


class Window:
    """Entries by what may be done with them. Times in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        """Ready and never handed out: they come in order."""
        self._returned: list[Entry] = []
        """Ready again: a heap."""
        self._line: deque[Entry] = deque()
        """Ordered entries in any state; the first one holds up the others."""
        self._delayed: list[tuple[float, Entry]] = []
        self._all: dict[int, Entry] = {}
        self.bytes_held = 0
        self.leased = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def ready(self) -> int:
        """Entries that could be sent now; those that were dropped meanwhile may still be counted."""
        return len(self._fresh) + len(self._returned)

    def add(self, entry: Entry) -> None:
        """Take in an entry that is ready; each has a higher sequence number than those before it."""
        self._all[entry.sequence] = entry
        self.bytes_held += entry.size
        entry.state = EntryState.READY
        if entry.is_ordered:
            self._line.append(entry)
        elif entry.is_volatile:  # its number is higher than that of entries to come
            heapq.heappush(self._returned, entry)
        else:
            self._fresh.append(entry)

    def take(self) -> Entry | None:
        """Hand out the next entry, if one is ready."""
        entry = self._first()
        if entry is None:
            return None
        if self._fresh and self._fresh[0] is entry:
            self._fresh.popleft()
        elif not entry.is_ordered:
            heapq.heappop(self._returned)
        entry.state = EntryState.LEASED
        self.leased += 1
        return entry

    def release(self, entry: Entry) -> None:
        """An entry that was handed out is ready again."""
        self._return(entry)
        self.put_back(entry)

    def delay(self, entry: Entry, due: float) -> None:
        """An entry that was handed out is ready again at `due`."""
        self._return(entry)
        entry.state = EntryState.DELAYED
        heapq.heappush(self._delayed, (due, entry))

    def put_back(self, entry: Entry) -> None:
        """An entry that was to be written stays: it is ready."""
        entry.state = EntryState.READY
        if not entry.is_ordered:
            heapq.heappush(self._returned, entry)

    def wake(self, now: float) -> int:
        """Make ready what is due; tell how many there are."""
        count = 0
        while self._delayed and self._delayed[0][0] <= now:
            _, entry = heapq.heappop(self._delayed)
            if entry.state is EntryState.DELAYED:
                self.put_back(entry)
                count += 1
        return count

    def next_due(self) -> float | None:
        """When the next delayed entry is ready."""
        while self._delayed and self._delayed[0][1].state is not EntryState.DELAYED:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def remove(self, entry: Entry) -> None:
        """Forget an entry: it is settled, dropped or written."""
        if entry.state is EntryState.LEASED:
            self.leased -= 1
        entry.state = EntryState.GONE
        del self._all[entry.sequence]
        self.bytes_held -= entry.size

    def attempts(self) -> dict[int, int]:
        """Failed attempts of the entries that have some, volatile ones aside, by sequence number."""
        return {
            sequence: entry.attempts
            for sequence, entry in self._all.items()
            if entry.attempts and not entry.is_volatile
        }

    def oldest(self) -> Entry | None:
        """The first in line, whatever its state."""
        return min(self._all.values(), default=None)

    def oldest_idle(self) -> Entry | None:
        """The first in line that no worker has; volatile ones aside."""
        first = self._first()
        idle = [] if first is None else [first]
        idle += [entry for _, entry in self._delayed if entry.state is EntryState.DELAYED]
        idle += [entry for entry in islice(self._line, 2) if entry.state is EntryState.READY]
        found = min(idle, default=None)
        return None if found is None or found.is_volatile else found

    def _first(self) -> Entry | None:
        """The first in line that is ready; what was settled meanwhile is forgotten on the way."""
        fresh, returned, line = self._fresh, self._returned, self._line
        while fresh and fresh[0].state is not EntryState.READY:
            fresh.popleft()
        while returned and returned[0].state is not EntryState.READY:
            heapq.heappop(returned)
        while line and line[0].state is EntryState.GONE:
            line.popleft()
        first = fresh[0] if fresh else None
        if returned and (first is None or returned[0] < first):
            first = returned[0]
        if line and line[0].state is EntryState.READY and (first is None or line[0] < first):
            first = line[0]
        return first

    def _return(self, entry: Entry) -> None:
        assert entry.state is EntryState.LEASED, "an entry comes back once"
        self.leased -= 1
