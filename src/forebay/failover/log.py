"""FailoverLog: a log that goes on taking outcomes while it is away, and lets nobody wait for it then.

Invariants: what is settled is in the log or in the spool before the call returns, under one id; after an
outage outcomes come to the log before anything else is asked of it: who takes claims over, or looks which of
them were lost, must not find what was settled meanwhile. Appends are refused while it is away: they need
names of queues, which is the business of `Failover`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from forebay.failover import outcomes
from forebay.failover.health import Health
from forebay.failover.outcomes import Marked, Outcome, Settled, entry_of
from forebay.failover.sinks import answered
from forebay.log.seam import Log, LogAway
from forebay.log.values import Append, Mark, Receipt, Settlement
from forebay.model import Corrupt, mint
from forebay.spool.lines import SpooledSettlement
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from forebay.spool.scanning import Found, Place
from forebay.spool.spool import Spool

T = TypeVar("T")
logger: Final = logging.getLogger("forebay.failover")
PATIENCE: Final = 10
"""How much longer than one write the replay of many may take."""
FEW_FILES: Final = 1
"""When so many files are left, whoever settles waits for the end."""


class FailoverLog:
    """See the module. All verbs are those of the log; `seconds` is how long it may take to write."""

    def __init__(self, log: Log, spool: Spool, health: Health, *, seconds: float) -> None:
        self._log = log
        self._spool = spool
        self._health = health
        self._seconds = seconds
        self._is_open = False
        self._may_spool = asyncio.Event()
        self._may_spool.set()
        self._spooling = 0
        self._none_spooling = asyncio.Event()
        self._none_spooling.set()
        self.waiting = 0
        """Outcomes in the spool."""
        self.late = 0
        """Outcomes that came too late, since the start."""

    async def __aenter__(self) -> Self:
        await self._log.__aenter__()
        try:
            await self.catch_up()
        except BaseException as error:
            await self._log.__aexit__(type(error), error, error.__traceback__)
            raise
        self._health.lost.append(self._log.hang_up)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        self._health.lost.remove(self._log.hang_up)
        self._health.close()
        await self._log.__aexit__(kind, error, trace)

    def __getattr__(self, verb: str) -> Any:
        """Every other verb, bounded by the health of the log."""
        call = getattr(self._log, verb)

        async def guarded(*arguments: Any, **options: Any) -> Any:
            return await self._health.call(lambda: call(*arguments, **options))

        self.__dict__[verb] = guarded
        return guarded

    async def ping(self) -> None:
        """Return when the log answers, whether it is known to be there or not."""
        if not self._is_open:
            raise self._health.away()
        async with asyncio.timeout(self._seconds):
            await self._log.queues()

    def hang_up(self) -> None:
        """Drop connections that may be dead."""
        self._log.hang_up()

    async def commit(
        self,
        appends: Sequence[Append] = (),
        settlements: Sequence[Settlement] = (),
        *,
        id: bytes | None = None,
        atomic: bool = False,
    ) -> Receipt:
        """Write; what is only settled goes to the spool while the log is away."""
        if appends or atomic:
            return await self._health.call(
                lambda: self._log.commit(appends, settlements, id=id, atomic=atomic)
            )
        write_id = id or mint()
        if any(death.message is None for settlement in settlements for death in settlement.dead):
            await self._spool_outcome(Settled(tuple(settlements)), write_id)
            return Receipt()
        return await self._or_spool(
            lambda: self._log.commit(settlements=settlements, id=write_id),
            Settled(tuple(settlements)), write_id, Receipt(),
        )  # fmt: skip

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        """Note what is out; in the spool while the log is away, which refuses nothing then."""
        if not marks:
            return ()
        return await self._or_spool(lambda: self._log.mark(marks), Marked(tuple(marks)), mint(), ())

    async def _or_spool(self, verb: Callable[[], Any], outcome: Outcome, id: bytes, instead: T) -> T:
        while True:
            try:
                return cast("T", await self._health.call(verb, self._seconds))
            except LogAway:
                if await self._spool_outcome(outcome, id, only_away=True):
                    return instead

    async def _spool_outcome(self, outcome: Outcome, id: bytes, *, only_away: bool = False) -> bool:
        """Keep an outcome for the log; not if it is back meanwhile, and only those are wanted."""
        await self._may_spool.wait()
        if only_away and self._health.is_healthy:
            return False
        self._spooling += 1
        self._none_spooling.clear()
        self.waiting += 1
        try:
            await self._spool.append([entry_of(outcome, id)], prefix="settle")
        except BaseException:
            self.waiting -= 1
            raise
        finally:
            self._spooling -= 1
            if not self._spooling:
                self._none_spooling.set()
        return True

    async def catch_up(self) -> None:
        """Bring all outcomes from the spool to the log, which is back then: nobody adds any in between."""
        await self._spool.flush()
        while len(files := await self._files()) > FEW_FILES:
            await self._replay(files)
            await self._spool.flush()
        self._may_spool.clear()
        try:
            await self._none_spooling.wait()
            await self._spool.flush()
            await self._replay(await self._files())
            self.waiting = 0
            self._health.recover()
        finally:
            self._may_spool.set()

    async def _files(self) -> list[FileName]:
        return await asyncio.to_thread(self._spool.reader.files, "settle")

    async def _replay(self, files: Sequence[FileName]) -> None:
        for name in files:
            place: Place | None = Place()
            while place is not None:
                page = await asyncio.to_thread(self._spool.reader.read, name, place)
                await self._tell(name, page.found)
                place = page.next
            await asyncio.to_thread(self._spool.reader.done, name)

    async def _tell(self, name: FileName, found: Sequence[Found]) -> None:
        entries = []
        for each in found:
            if not isinstance(each.entry, SpooledSettlement):
                await _set_aside(self._spool.reader, name, each, "this is no outcome")
                continue
            try:
                outcomes.outcome_of(each.entry)
            except Corrupt as error:
                await _set_aside(self._spool.reader, name, each, str(error))
            else:
                entries.append(each.entry)
        late = await answered(self._log, outcomes.replay(self._log, entries), PATIENCE * self._seconds)
        self.waiting = max(0, self.waiting - len(entries))
        if late:
            self.late += late
            text = "%d outcomes came too late: their tasks were handed out by another server meanwhile"
            logger.warning(text, late)


async def _set_aside(reader: Reader, name: FileName, found: Found, reason: str) -> None:
    await asyncio.to_thread(reader.refuse, name, [found], reason)


def guarded(failover_log: FailoverLog) -> Log:
    """The same, as the log that it is: all other verbs come from the log that it guards."""
    return cast("Log", failover_log)
