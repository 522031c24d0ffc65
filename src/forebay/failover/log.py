"""FailoverLog: a log that goes on taking outcomes while it is away, and lets nobody wait for it then.

Invariants: what is settled is in the log or in the spool before the call returns, under one id; after an
outage outcomes come to the log before anything else is asked of it: who takes claims over, or looks which of
them were lost, must not find what was settled meanwhile. Appends are refused while it is away: they need
names of queues, which is the business of `Failover`. So are atomic commits and records: they may be refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from forebay.failover import outcomes
from forebay.failover.health import PATIENCE, Health, UnansweredError
from forebay.failover.outcomes import Marked, Outcome, Settled, entry_of
from forebay.log.seam import Log, LogAway, Unchecked
from forebay.log.values import Append, Mark, Receipt, Record, Settlement
from forebay.model import Conflict, Corrupt, ForebayError, Rejected, Unavailable, mint
from forebay.spool.lines import SpooledSettlement
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from forebay.spool.scanning import Found, Place
from forebay.spool.spool import Spool

T = TypeVar("T")
logger: Final = logging.getLogger("forebay.failover")
SPOOLED: Final = Receipt(where="spool")
FEW: Final = 100
"""When so many outcomes are left, whoever settles waits for the end."""

QUICK: Final = frozenset({"queue", "queues", "groups", "owners", "outlook", "heartbeat", "retire"})
"""Verbs that take no time, and are called time and again: a log that swallows them is away.

Without a push or a settlement nobody else would notice for long, while whoever takes waits for it.
"""

REPEATED: Final = QUICK | {
    "create_queue",
    "create_group",
    "recall",
    "holding",
    "stamp",
    "locate",
    "records",
    "dead_letters",
    "outcomes",
}
"""Verbs that may be called twice for once: after a lone connection was cut they are."""

CREATING: Final = frozenset({"create_queue", "create_group"})
"""Verbs of a push beside its commit: it goes to the spool whatever is wrong with the log."""


class FailoverLog:
    """See the module. All verbs are those of the log; `seconds` is how long it may take to write."""

    def __init__(self, log: Log, spool: Spool, health: Health, *, seconds: float) -> None:
        self._log = log
        self._spool = spool
        self._health = health
        self.seconds = seconds
        self._last_seconds = seconds
        self._is_open = False
        self._may_spool = asyncio.Event()
        self._may_spool.set()
        self._spooling = 0
        self._none_spooling = asyncio.Event()
        self._none_spooling.set()
        self.waiting = 0
        """Entries in the spool: outcomes and marks."""
        self.before = 0
        """How many of them were there at the start; nobody looks at them before they are replayed."""
        self.answered: Counter[int] = Counter()
        """Tasks whose outcomes are in the spool, by the number of their group."""
        self.spooled = 0
        """Tasks whose outcomes were spooled since the start."""
        self.late = 0
        """Tasks whose outcomes came too late, since the start."""

    def go_on(self, other: FailoverLog) -> None:
        """Go on with what another one has counted."""
        self.waiting, self.before, self.answered = other.waiting, other.before, other.answered
        self.spooled, self.late = other.spooled, other.late

    @property
    def settlements(self) -> int:
        """Tasks whose outcomes wait for the log; of before the start, the calls that settled some."""
        return self.before + self.answered.total()

    async def __aenter__(self) -> Self:
        await self._log.__aenter__()
        self._health.probe = self._probe
        try:
            await self.catch_up()
        except BaseException as error:
            self._health.probe = None
            await self._log.__aexit__(type(error), error, error.__traceback__)
            raise
        self._health.lost.append(self._log.hang_up)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        self._health.probe = None
        self._health.lost.remove(self._log.hang_up)
        self._health.close()
        await self._log.__aexit__(kind, error, trace)

    def __getattr__(self, verb: str) -> Any:
        """Every other verb, bounded by the health of the log."""
        call = getattr(self._log, verb)
        if verb in CREATING:
            call = _expected(call)
        seconds, again = self.seconds if verb in QUICK else None, verb in REPEATED

        async def guarded(*arguments: Any, **options: Any) -> Any:
            return await self._health.call(
                lambda: call(*arguments, **options), seconds, ping=self.ping, again=again
            )

        self.__dict__[verb] = guarded
        return guarded

    async def ping(self, seconds: float | None = None) -> None:
        """Return when the log answers, whether it is known to be there or not; at most so many seconds."""
        if not self._is_open:
            raise self._health.away()
        async with asyncio.timeout(seconds or self.seconds):
            await self._probe()

    async def _probe(self) -> None:
        """Ask for something that costs nothing, however much the log holds."""
        await self._log.outlook(())

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
        records: Sequence[Record] = (),
    ) -> Receipt:
        """Write; what is only settled goes to the spool while the log is away."""
        if appends or atomic or records:
            commit = _expected(self._log.commit)
            return await self._health.call(
                lambda: commit(appends, settlements, id=id, atomic=atomic, records=records)
            )
        write_id, outcome = id or mint(), Settled(tuple(settlements))
        if any(death.message is None for settlement in settlements for death in settlement.dead):
            # The log was away when they were looked up. If it is back it has to hear of it now: claims may be
            # given back before the spool is looked at.
            return await self._or_spool(
                lambda: self._settle_nameless(outcome, write_id), outcome, write_id, SPOOLED
            )
        return await self._or_spool(
            lambda: self._log.commit(settlements=settlements, id=write_id), outcome, write_id, SPOOLED
        )

    async def _settle_nameless(self, outcome: Settled, id: bytes) -> Receipt:
        self.late += await outcomes.replay(self._log, [entry_of(outcome, id)])
        return Receipt()

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        """Note what is out; in the spool while the log is away, which can't refuse anything then."""
        if not marks:
            return ()
        marked, unchecked = Marked(tuple(marks)), Unchecked()
        return await self._or_spool(lambda: self._log.mark(marks), marked, mint(), unchecked)

    async def _or_spool(self, verb: Callable[[], Any], outcome: Outcome, id: bytes, instead: T) -> T:
        while True:
            try:
                return cast("T", await self._health.call(verb, self.seconds))
            except LogAway:
                if await self._spool_outcome(outcome, id):
                    return instead

    async def _spool_outcome(self, outcome: Outcome, id: bytes) -> bool:
        """Keep an outcome for the log; not if it is back meanwhile."""
        await self._may_spool.wait()
        if self._health.is_healthy:
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
        tasks = outcomes.tasks_of(outcome)
        self.answered.update(tasks)
        self.spooled += tasks.total()
        return True

    async def catch_up(self) -> None:
        """Bring all outcomes from the spool to the log, which is back then: nobody adds any in between."""
        # Finished files come first: a log that answers and takes nothing would get a new file each time.
        await self._replay(PATIENCE * self.seconds)
        await self._spool.flush()
        before = None
        while self.waiting > FEW and (before is None or self.waiting < before):
            before = self.waiting
            await self._replay(PATIENCE * self.seconds)
            await self._spool.flush()
        self._may_spool.clear()
        try:
            await self._none_spooling.wait()
            await self._spool.flush()
            # Others wait for it: no longer than for a write of their own, unless the log needs longer.
            await self._replay(self._last_seconds)
            self.waiting = self.before = 0
            self.answered.clear()
            self._last_seconds = self.seconds
            self._health.recover()
        except Unavailable:
            self._last_seconds = min(2 * self._last_seconds, PATIENCE * self.seconds)
            raise
        finally:
            self._may_spool.set()

    async def _replay(self, seconds: float) -> None:
        """Bring what can be read to the log; each page may take so many seconds."""
        for name in await asyncio.to_thread(self._spool.reader.files, "settle"):
            place: Place | None = Place()
            told, tasks = 0, Counter[int]()
            while place is not None:
                page = await asyncio.to_thread(self._spool.reader.read, name, place)
                sound = await self._tell(name, page.found, seconds)
                told += len(sound)
                for outcome in sound:
                    tasks.update(outcomes.tasks_of(outcome))
                place = page.next
            await asyncio.to_thread(self._spool.reader.done, name)
            self.waiting = max(0, self.waiting - told)
            self.answered -= tasks  # never below 0

    async def _tell(self, name: FileName, found: Sequence[Found], seconds: float) -> list[Outcome]:
        """Tell the log of a page; the outcomes that it has."""
        sound, said = list[Found](), list[Outcome]()
        for each in found:
            if not isinstance(each.entry, SpooledSettlement):
                await _set_aside(self._spool.reader, name, each, "this is no outcome")
                continue
            try:
                said.append(outcomes.outcome_of(each.entry))
            except Corrupt as error:
                await _set_aside(self._spool.reader, name, each, str(error))
            else:
                sound.append(each)
        late = await self._tell_of(name, sound, seconds)
        if late:
            self.late += late
            text = "the outcomes of %d tasks came too late: another server handed them out, or settled them"
            logger.warning(text, late)
        return said

    async def _tell_of(self, name: FileName, found: Sequence[Found], seconds: float) -> int:
        """Tell the log of outcomes; how many came too late. What it refuses is set aside alone."""
        entries = [each.entry for each in found if isinstance(each.entry, SpooledSettlement)]
        try:
            return await self._health.wait(outcomes.replay(self._log, entries), seconds)
        except UnansweredError as error:
            self._log.hang_up()
            raise Unavailable(str(error), retry_after_seconds=1.0) from None
        except (Rejected, Conflict, Corrupt) as error:
            if len(found) == 1:
                text = "an outcome of %s was refused and set aside: %s"
                logger.error(text, name, error)  # noqa: TRY400 - where it comes from helps nobody
                await _set_aside(self._spool.reader, name, found[0], str(error))
                return 0
        half = len(found) // 2
        late = await self._tell_of(name, found[:half], seconds)
        return late + await self._tell_of(name, found[half:], seconds)


def _expected(verb: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """A verb of the log that says Unavailable when the log fails in a way that nobody expected."""

    async def call(*arguments: Any, **options: Any) -> T:
        try:
            return await verb(*arguments, **options)
        except (ForebayError, TimeoutError):
            raise
        except Exception as error:
            logger.exception("the log fails in a way that nobody expected")
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    return call


async def _set_aside(reader: Reader, name: FileName, found: Found, reason: str) -> None:
    await asyncio.to_thread(reader.refuse, name, [found], reason)


def guarded(failover_log: FailoverLog) -> Log:
    """The same, as the log that it is: all other verbs come from the log that it guards."""
    return cast("Log", failover_log)
