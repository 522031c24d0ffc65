"""Draining a folder of spool files: all of them through a sink, oldest first, and what became of it.

Invariants: nothing is removed before it is in the store, or set aside with its reason; what is wrong with one
file, or with its disk, keeps no other from being replayed; a store that is away, or that doesn't let us in,
ends it, and nothing is set aside for that.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from forebay.app.commands.meter import Meter, shown
from forebay.app.commands.output import warn
from forebay.app.commands.spool import SHOWN_MAX, fault_text, plural, recovered_fields
from forebay.disk import Disk
from forebay.failover.replaying import Replayer
from forebay.failover.sinks import Addressed, Refused, Sink
from forebay.model import (
    Conflict,
    Corrupt,
    Forbidden,
    ForebayError,
    Rejected,
    Unauthorized,
    Unavailable,
    UnknownQueue,
)
from forebay.spool.lines import SpooledSettlement
from forebay.spool.names import FAILED, FileName
from forebay.spool.reader import Reader
from forebay.spool.recovering import Recovered
from forebay.spool.scanning import Fault, Found, Page, Place

__all__ = ["KnownOnly", "Options", "Outcome", "StoreGoneError", "drain", "in_order"]

PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
NO_OUTCOMES: Final = (
    "outcomes of tasks are for the log that the server worked on; if --store is that log, add --outcomes"
)
_START: Final = Place()
T = TypeVar("T")

Settle = Callable[[Sequence[SpooledSettlement]], Awaitable[int]]
"""Tells a log what became of tasks; of how many it was told too late."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a folder is replayed."""

    keep: bool = False
    retry_seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What became of a folder so far."""

    store: str
    folder: str
    queues: Counter[str] = field(default_factory=Counter)
    """Messages that are in the store, by queue."""
    settlements: int = 0
    late: int = 0
    """Outcomes that came too late: somebody else had the task by then."""
    refused: int = 0
    damaged: int = 0
    left: dict[str, str] = field(default_factory=dict)
    """Files that were not replayed, and why."""
    recovered: list[Recovered] = field(default_factory=list)
    meter: Meter = field(default_factory=lambda: Meter("replay", 0, "events"))
    _said: int = 0

    @property
    def messages(self) -> int:
        """How many are in the store."""
        return self.queues.total()

    @property
    def is_complete(self) -> bool:
        """Whether all of the folder is in the store."""
        return not (self.refused or self.damaged or self.left)

    def say(self, text: str) -> None:
        """Say what is wrong, unless that was done often enough."""
        self._said += 1
        if self._said <= SHOWN_MAX:
            warn(text)
        elif self._said == SHOWN_MAX + 1:
            warn(f"and more; see {self.folder}/{FAILED}/*.reasons, or `forebay spool verify {self.folder}`")

    def leave(self, path: str, reason: str) -> None:
        """A file stays."""
        if path not in self.left:
            self.left[path] = reason
            self.say(f"{path} stays where it is: {reason}")

    def sentence(self) -> str:
        """For people."""
        messages, meter = self.messages, self.meter
        rate = messages / max(meter.seconds, 1e-6)
        verb = "is" if messages == 1 else "are"
        text = f"{plural(messages, 'message')} {verb} in {self.store} ({rate:,.0f}/s)"
        if meter.done < meter.total:
            text += f"; {meter.done:,} of {meter.total:,} events were looked at"
        if self.settlements:
            late = f", {self.late:,} of them too late" if self.late else ""
            text += f"; {plural(self.settlements, 'outcome')} of tasks{late}"
        if self.refused:
            text += f"; {plural(self.refused, 'message')} refused"
        if self.damaged:
            text += f"; {plural(self.damaged, 'piece')} damaged"
        return text

    def fields(self) -> dict[str, Any]:
        """For programs."""
        return {
            "store": self.store, "messages": self.messages, "queues": dict(self.queues),
            "settlements": self.settlements, "late": self.late, "refused": self.refused,
            "damaged": self.damaged, "left": self.left,
            "recovered": [recovered_fields(recovered) for recovered in self.recovered],
            "seconds": round(self.meter.seconds, 3),
        }  # fmt: skip


class StoreGoneError(Exception):
    """The store can't be reached, or doesn't let us in: nothing is said of any message."""

    def __init__(self, error: ForebayError) -> None:
        super().__init__(str(error))
        self.error = error


class _Folder(Reader):
    """Reads a folder, and notes what is wrong with it. With `keep` it stays as it is."""

    def __init__(self, disk: Disk, outcome: Outcome, *, keep: bool) -> None:
        super().__init__(disk)
        self._outcome = outcome
        self._keep = keep
        self._held: set[FileName] = set()

    def read(
        self,
        name: FileName,
        start: Place = _START,
        *,
        events_max: int = 1_000,
        bytes_max: int = 8 << 20,
        failed: bool = False,
    ) -> Page:
        """Read a page."""
        page = super().read(name, start, events_max=events_max, bytes_max=bytes_max, failed=failed)
        path = _path(name, failed=failed)
        for fault in page.faults:
            self._outcome.damaged += 1
            self._outcome.say(f"{path} {fault_text(fault)}")
        if name.prefix != "settle" and any(isinstance(each.entry, SpooledSettlement) for each in page.found):
            self._held.add(name)
            self._outcome.leave(path, "it holds outcomes of tasks beside messages")
        return page

    def refuse(self, name: FileName, refused: list[Found], reason: str) -> None:
        """Set aside what the store refuses; what is kept needn't be."""
        for each in refused:
            self._outcome.say(f"{name} {fault_text(Fault('refused', reason, each.stretch))}")
        if not self._keep:
            super().refuse(name, refused, reason)

    def done(self, name: FileName, *, failed: bool = False) -> None:
        """Remove a file of which everything is in the store, or was set aside."""
        if not self._keep and name not in self._held:
            super().done(name, failed=failed)


def _path(name: FileName, *, failed: bool) -> str:
    return f"{FAILED}/{name}" if failed else str(name)


class KnownOnly:
    """Refuses what is for queues that aren't there, before a server makes them."""

    def __init__(self, sink: Sink, known: set[str]) -> None:
        self._sink = sink
        self._known = known

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write what is for queues that are there."""
        places = [place for place, (queue, _) in enumerate(blocks) if queue in self._known]
        refused = await self._sink.write([blocks[place] for place in places])
        return [
            *(Refused(places[each.place], each.block, each.error) for each in refused),
            *(
                Refused(place, block, _unknown(queue))
                for place, (queue, block) in enumerate(blocks)
                if queue not in self._known
            ),
        ]


def _unknown(queue: str) -> UnknownQueue:
    return UnknownQueue(f"there is no queue {queue!r}", hint="make it, or leave --no-create out")


class _CheckedSink:
    """Waits for a store that is away, for a while; counts what is in. A key that is refused ends it all."""

    def __init__(self, sink: Sink, outcome: Outcome, seconds: float) -> None:
        self._sink = sink
        self._outcome = outcome
        self._seconds = seconds
        self.last: ForebayError | None = None
        """What was refused last."""

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks, all over again if need be."""
        try:
            refused = await _patiently(lambda: self._sink.write(blocks), self._seconds)
        except (Unauthorized, Forbidden) as error:  # no message is to blame for that
            raise StoreGoneError(error) from error
        written = Counter({queue: 0 for queue, _ in blocks})
        for queue, block in blocks:
            written[queue] += len(block)
        for each in refused:
            self.last = each.error
            written[blocks[each.place][0]] -= len(each.block)
        self._outcome.queues.update(+written)
        self._outcome.meter.add(written.total())
        return refused


async def _patiently(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Do something with a store; while it is away, again and again for so long."""
    deadline, pause = None, PAUSE_SECONDS
    while True:
        try:
            return await work()
        except Unavailable as error:
            if deadline is None:
                deadline = time.monotonic() + seconds
            pause = min(max(pause, error.retry_after_seconds or 0), PAUSE_SECONDS_MAX)
            if time.monotonic() + pause > deadline:
                raise StoreGoneError(error) from error
        await asyncio.sleep(pause)
        pause *= 2


def in_order(files: Sequence[FileName], failed: Sequence[FileName]) -> list[tuple[FileName, bool]]:
    """All files, and whether each is among the failed, in the order in which they are replayed.

    Outcomes of tasks come first, as in a server: what is done shall not be handed out again. Then the oldest
    file comes first, and what was refused of a file before the rest of it.
    """
    found = [*((name, True) for name in failed), *((name, False) for name in files)]
    return sorted(found, key=lambda pair: (pair[0].prefix != "settle", pair[0]))


async def drain(
    disk: Disk, sink: Sink, outcome: Outcome, options: Options, settle: Settle | None = None
) -> None:
    """Replay all files of a folder that is ours; `outcome` says what became of them, however this ends.

    Without `settle` the files that hold outcomes of tasks stay where they are.
    """
    folder = _Folder(disk, outcome, keep=options.keep)
    files = in_order(folder.files(), folder.failed())
    counts = await asyncio.to_thread(_count, folder, files)
    meter = outcome.meter = Meter("replay", sum(counts.values()), "events")
    draining = _Draining(folder, sink, outcome, options, settle)
    with shown(meter):
        for name, failed in files:
            begun = meter.done
            try:
                await draining.replay(name, failed=failed)
            except Unavailable as error:  # of the folder's disk: a store that is away is another error
                outcome.leave(_path(name, failed=failed), error.message)
            meter.add(counts[name, failed] - (meter.done - begun))


def _count(folder: Reader, files: Sequence[tuple[FileName, bool]]) -> dict[tuple[FileName, bool], int]:
    return {(name, failed): folder.count(name, failed=failed) for name, failed in files}


class _Draining:
    """One file after the other."""

    def __init__(
        self, folder: _Folder, sink: Sink, outcome: Outcome, options: Options, settle: Settle | None
    ) -> None:
        self._folder = folder
        self._outcome = outcome
        self._seconds = options.retry_seconds
        self._sink = _CheckedSink(sink, outcome, options.retry_seconds)
        self._replayer = Replayer(folder, self._sink)
        self._settle = settle

    async def replay(self, name: FileName, *, failed: bool) -> None:
        """Replay a file of any kind."""
        path = _path(name, failed=failed)
        if name.prefix == "settle":
            if self._settle is None:
                self._outcome.leave(path, NO_OUTCOMES)
            else:
                await self._settle_all(self._settle, name, failed=failed)
        elif not failed:
            self._outcome.refused += (await self._replayer.replay(name)).refused
        else:
            self._tried_again(path, (await self._replayer.replay_failed(name)).refused)

    def _tried_again(self, path: str, refused: int) -> None:
        self._outcome.refused += refused
        if refused:
            reason = f": {self._sink.last}" if self._sink.last else ""
            self._outcome.say(f"{path}: {plural(refused, 'event')} refused again{reason}")

    async def _settle_all(self, settle: Settle, name: FileName, *, failed: bool) -> None:
        """Tell the log of outcomes; those that it can't read are set aside."""
        place: Place | None = _START
        again = 0
        while place is not None:
            page = await asyncio.to_thread(self._folder.read, name, place, failed=failed)
            refused = await self._settle_page(settle, page.found)
            if failed:
                again += len(refused)
            else:
                self._outcome.refused += len(refused)
                for each, error in refused:
                    await asyncio.to_thread(self._folder.refuse, name, [each], str(error))
            place = page.next
        self._tried_again(_path(name, failed=failed), again)
        if not again:
            await asyncio.to_thread(self._folder.done, name, failed=failed)

    async def _settle_page(self, settle: Settle, found: Sequence[Found]) -> list[tuple[Found, ForebayError]]:
        """Settle in order; where that is refused, in halves, until only what is to blame is left."""
        entries = [each.entry for each in found if isinstance(each.entry, SpooledSettlement)]
        if not entries:
            return []
        try:
            self._outcome.late += await _patiently(lambda: settle(entries), self._seconds)
        except (Corrupt, Rejected, Conflict) as error:
            if len(found) == 1:
                return [(found[0], error)]
            half = len(found) // 2
            first = await self._settle_page(settle, found[:half])
            return [*first, *await self._settle_page(settle, found[half:])]
        self._outcome.settlements += len(entries)
        return []
