"""Manager: round by round, who of the workers does what. Several may run; one leads, the others stand by.

A round reads the board and the books of the store, works out the plan (see `allocation`), and writes it with
the lead renewed. Invariants: only who leads writes, and what it writes is fenced by the version of its lead;
a round that fails, for whatever reason, changes nothing and is tried again; a leader that dies is replaced
when its lead ends, whatever its clock said, one that stops is replaced in the next round of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import getpid
from secrets import token_hex
from socket import gethostname
from time import monotonic
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from forebay.log.values import QueueStats, Stats
from forebay.model import Conflict, ForebayError, Misconfigured, Rejected, UnknownQueue
from forebay.store.seam import Store
from forebay.work.allocation import Demand, Memory, Plan, Rule, Station, allocate
from forebay.work.board import LEAD_SECONDS, Board, Crew, Lead, Orders, board_of
from forebay.work.manager_numbers import ManagerNumbers
from forebay.work.values import WorkerReport

__all__ = ["Manager", "ManagerSettings"]

logger: Final = logging.getLogger("forebay.work")
_STOP_SECONDS: Final = 5.0
_WEIGHT_MAX: Final = 1_000.0
_SHOWN_MAX: Final = 20
SINGLY_MAX: Final = 32
"""Served queues whose books are asked for one by one; of more, all queues are asked for at once."""


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a Manager can be told."""

    round_seconds: float = 2.0
    """How often it looks; a fraction of how long a lead lasts."""
    weights: Mapping[str, float] = {}
    """By queue: how much more its work counts than that of others, which is 1."""
    rule: Rule = Rule()
    """How much is moved, and how soon."""

    def __post_init__(self) -> None:
        """Refuse what would lose the lead, or let nobody else have a processor."""
        if not 0 < self.round_seconds <= LEAD_SECONDS / 2:
            text = f"a round every {self.round_seconds} s"
            raise Rejected(text, hint=f"give more than 0 and up to {LEAD_SECONDS / 2:g}")
        for queue, weight in self.weights.items():
            if not 0 < weight <= _WEIGHT_MAX:
                text = f"a weight of {weight} for {queue}"
                raise Rejected(text, hint=f"give more than 0 and up to {_WEIGHT_MAX:g}")


_DEFAULT: Final = ManagerSettings()


class Manager:
    """See the module. The store stays open. No other Manager has its `name`; `elapsed` tells seconds.

    Its numbers go to `registry`, which no other Manager uses, else to one of its own.
    """

    def __init__(
        self,
        store: Store,
        *,
        board: Board | None = None,
        name: str | None = None,
        settings: ManagerSettings = _DEFAULT,
        elapsed: Callable[[], float] = monotonic,
        registry: CollectorRegistry | None = None,
    ) -> None:
        found = board or board_of(store)
        if found is None:
            raise Misconfigured("this store has no place for reports", hint="use a log, or a Forebay server")
        self._board = found
        self._store = store
        self._settings = settings
        self._elapsed = elapsed
        self.name = name or f"{gethostname()}:{getpid()}-{token_hex(3)}"
        self._lead: Lead | None = None
        self._renewed: tuple[int, float] = (0, 0.0)
        """The version of another's lead, and when it was first seen."""
        self._memories: dict[str, Memory] = {}
        self._unreadable: frozenset[str] = frozenset()
        self._stopping = asyncio.Event()
        self._numbers = ManagerNumbers(elapsed)
        self.registry = registry if registry is not None else CollectorRegistry()
        self.registry.register(self._numbers)
        self.trouble: str | None = None
        """Why its last round failed; None if it didn't."""
        self.plan: Plan = {}
        """What it has told workers, while it leads."""

    @property
    def leads(self) -> bool:
        """Whether it led in its last round."""
        return self._lead is not None

    async def run(self) -> None:
        """Do rounds until it is told to stop."""
        while not self._stopping.is_set():
            try:
                await self.round()
            except Exception as error:  # noqa: BLE001 - workers would be without a Manager
                self._note(error)
            else:
                self._note(None)
            try:
                async with asyncio.timeout(self._settings.round_seconds):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        await self._resign()

    def stop(self) -> None:
        """Stop: if it leads, another may at once."""
        self._stopping.set()

    async def round(self) -> bool:
        """Look, and say what is to be done, if this is the one who leads; whether it is."""
        try:
            leads = await self._round()
        except Exception:
            self._numbers.failed()
            raise
        return leads

    async def _round(self) -> bool:
        began, crew = self._elapsed(), await self._board.crew()
        self._mention(crew.unreadable)
        if self._is_another(crew.lead):
            self._stand_by(str(crew.lead.manager))
            return False
        served = sorted({queue for report in crew.workers for queue in report.queues})
        plan, memories = self._planned(crew, await self._books(served))
        orders = Orders(manager=self.name, version=crew.lead.version, instructions=plan)
        try:
            lead = await self._board.direct_work(orders)
        except Conflict:  # another was faster, or this one was too slow
            self._stand_by("another")
            return False
        if self._lead is None:
            logger.info("this Manager leads", extra={"manager": self.name, "workers": len(plan)})
        if plan != self.plan:
            logger.info("processors: %s", _shown(plan), extra={"manager": self.name})
        self._numbers.led(plan, began)
        self._lead, self._memories, self.plan = lead, memories, plan
        return True

    async def _books(self, queues: Sequence[str]) -> Stats:
        """The books of the queues that are served: one by one while they are few, of however many."""
        if len(queues) > SINGLY_MAX:
            return await self._store.ledger()
        found: list[QueueStats] = []
        for queue in queues:
            with suppress(UnknownQueue):  # nobody has made it yet
                found.extend((await self._store.ledger(queue=queue)).queues)
        return Stats(0, found)

    def _is_another(self, lead: Lead) -> bool:
        """Whether another leads.

        One whose clock was ahead may leave a lead that seems never to end: if nobody renews it, it has ended.
        """
        if lead.manager in (None, self.name):
            return False
        now = self._elapsed()
        if lead.version != self._renewed[0]:
            self._renewed = lead.version, now
        return now - self._renewed[1] < LEAD_SECONDS

    def _planned(self, crew: Crew, stats: Stats) -> tuple[Plan, dict[str, Memory]]:
        """The plan for all workers; those of one group have the same work, so each group is planned alone."""
        plan, memories, now = dict[str, Mapping[str, int]](), dict[str, Memory](), self._elapsed()
        for group in sorted({report.group for report in crew.workers}):
            reports = [report for report in crew.workers if report.group == group]
            stations = stations_of(reports)
            told = {name: said.processors for name, said in crew.instructions.items() if name in stations}
            found, memories[group] = allocate(
                demands_of(reports, stats, group, self._settings.weights),
                stations,
                plan=told,
                memory=self._memories.get(group, Memory(now)),
                now=now,
                rule=self._settings.rule,
            )
            plan.update(found)
        return plan, memories

    def _stand_by(self, leader: str) -> None:
        if self._lead is not None:
            logger.warning("this Manager no longer leads", extra={"manager": self.name, "leader": leader})
        self._numbers.stood_by()
        self._lead, self._memories, self.plan = None, {}, {}

    async def _resign(self) -> None:
        """Leave the lead to another, if there is time."""
        if self._lead is None:
            return
        orders = Orders(manager=self.name, version=self._lead.version, resigns=True)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._board.direct_work(orders)
        except Exception as error:  # noqa: BLE001 - it stops all the same
            logger.warning("the lead ends by itself: %s", error)
        self._numbers.resigned()
        self._lead = None

    def _mention(self, unreadable: Sequence[str]) -> None:
        """Say once of each thing on the board that it can't be read."""
        new = [one for one in unreadable if one not in self._unreadable]
        if new:
            text = "left out, as it can't be read here: %s"
            logger.warning(text, ", ".join(new[:_SHOWN_MAX]), extra={"manager": self.name})
        self._unreadable = frozenset(unreadable)

    def _note(self, error: Exception | None) -> None:
        """Say once that rounds fail, and once that they don't."""
        if error is not None and self.trouble is None:
            trace = None if isinstance(error, ForebayError) else error
            logger.warning("workers go on as they are, since a round failed: %s", error, exc_info=trace)
        elif error is None and self.trouble is not None:
            logger.info("rounds succeed again")
        self.trouble = None if error is None else str(error) or type(error).__name__


def stations_of(reports: Iterable[WorkerReport]) -> dict[str, Station]:
    """Workers as the rule knows them; those that are about to go are left out."""
    return {
        report.worker: Station(
            processors=report.processors,
            limits={queue: found.processors_max for queue, found in report.queues.items()},
        )
        for report in reports
        if report.processors > 0
    }


def demands_of(
    reports: Sequence[WorkerReport], stats: Stats, group: str, weights: Mapping[str, float]
) -> dict[str, Demand]:
    """Queues as the rule knows them: those that the workers serve, and what a group has to do there.

    What a task takes is the mean of what the workers say, by how much each has done.
    """
    tasks = {
        books.queue.name: found.ready + found.held + found.due
        for books in stats.queues
        for found in books.groups
        if found.group.name == group and not books.queue.settings.paused
    }
    served = sorted({queue for report in reports for queue in report.queues})
    return {
        queue: Demand(
            tasks=tasks.get(queue, 0),
            seconds_per_task=_measured(queue, reports),
            weight=weights.get(queue, 1.0),
        )
        for queue in served
    }


def _measured(queue: str, reports: Sequence[WorkerReport]) -> float | None:
    seconds, counted = 0.0, 0
    for report in reports:
        found = report.queues.get(queue)
        if found is not None and found.seconds_per_task is not None:
            count = 1 + found.processed + found.errors
            seconds += found.seconds_per_task * count
            counted += count
    return seconds / counted if counted else None


def _shown(plan: Plan) -> str:
    """A plan as one line of a log."""
    told = (
        f"{worker}: {', '.join(f'{queue} {count}' for queue, count in given.items())}"
        for worker, given in list(plan.items())[:_SHOWN_MAX]
    )
    return "; ".join(told) or "none, there are no workers"
