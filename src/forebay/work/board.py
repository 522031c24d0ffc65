"""Board: where workers say how they are, and Managers what is to be done. Its records are beside the blocks.

Invariants: what isn't renewed vanishes: a worker's report, a Manager's lead, its instructions last.
Instructions are written together with the lead, at the version that their writer has read: whoever no longer
leads, however late it notices, changes nothing. What can't be read is left out and named, whoever wrote it:
workers and Managers of several versions share a board. Times are those of whoever writes: their clocks must
agree within a few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Meta

from forebay.log.seam import Log
from forebay.log.values import Record
from forebay.model import Clock, Rejected, SystemClock
from forebay.store.seam import Store
from forebay.store.store import LogStore
from forebay.work.settings import PROCESSORS_MAX
from forebay.work.values import WorkerReport

__all__ = ["Board", "Crew", "Instructions", "Lead", "LogBoard", "Orders", "Told", "board_of"]

REPORT_SECONDS: Final = 10.0
"""How long a report holds: a worker that says nothing for so long is gone."""
LEAD_SECONDS: Final = 10.0
"""How long a Manager leads that says nothing."""
INSTRUCTION_SECONDS: Final = 30.0
"""How long instructions hold: longer than it takes another Manager to lead."""
WORKERS_MAX: Final = 1_000
"""Workers that are seen at once."""
NAME_MAX: Final = 200
QUEUES_MAX: Final = 100
REPORTS: Final = "work.report"
INSTRUCTIONS: Final = "work.instructions"
LEADS: Final = "work.lead"
_LEAD: Final = "lead"
_SECOND: Final = 1_000_000
_encode: Final = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """What a Manager tells a worker."""

    manager: str
    processors: Mapping[str, int]
    """By queue: how many job processors may be at it."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker hears when it reports."""

    instructions: Instructions | None = None
    """None when nobody has told it anything lately."""


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """Which Manager leads."""

    manager: str | None = None
    """None if nobody does."""
    version: int = 0
    """Another one each time somebody leads, goes on to, or stops."""


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """All that is on the board."""

    workers: Sequence[WorkerReport]
    """By name."""
    instructions: Mapping[str, Instructions]
    """By worker; also those of workers that are gone, for a while."""
    lead: Lead = Lead()
    unreadable: Sequence[str] = ()
    """What is left out, since it can't be read: another version wrote it, or somebody else."""


class Orders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a Manager writes, if it leads, or if nobody does."""

    manager: str
    version: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """The lead's, as it was read."""
    instructions: Mapping[str, Mapping[str, int]] = {}
    """By worker and queue."""
    resigns: bool = False
    """Whether this is its last word: another may lead at once."""


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the lead. It doesn't expire: its version must never begin again, as it fences."""

    manager: str
    until: int


@runtime_checkable
class Board(Protocol):
    """The verbs."""

    async def report_work(self, report: WorkerReport) -> Instructions | None:
        """Say how a worker is, and hear what it is to do; None where nobody says anything."""
        ...

    async def crew(self) -> Crew:
        """All workers that are there, what they were told, and who leads."""
        ...

    async def direct_work(self, orders: Orders) -> Lead:
        """Lead, and tell workers what to do. Conflict, and nothing is changed, if another leads by now."""
        ...


def board_of(store: Store) -> Board | None:
    """The board of a store; None if it has none."""
    if isinstance(store, LogStore):
        return LogBoard(store.log, clock=store.clock)
    return store if isinstance(store, Board) else None


class LogBoard:
    """The board in a log's records."""

    def __init__(self, log: Log, *, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock or SystemClock()

    async def report_work(self, report: WorkerReport) -> Instructions | None:
        """Say how a worker is, and hear what it is to do; None where nobody says anything."""
        check_report(report)
        record = Record(REPORTS, report.worker, _encode(report), self._in(REPORT_SECONDS))
        await self._log.commit(records=[record])
        found = await self._log.records(INSTRUCTIONS, [report.worker])
        return _read(found[0].value, Instructions) if found else None

    async def crew(self) -> Crew:
        """All workers that are there, what they were told, and who leads."""
        reports = await self._log.scan(REPORTS, limit=WORKERS_MAX)
        told = await self._log.scan(INSTRUCTIONS, limit=WORKERS_MAX)
        workers = {kept.key: _read_report(kept.value) for kept in reports}
        instructions = {kept.key: _read(kept.value, Instructions) for kept in told}
        lead, is_known = await self._lead()
        return Crew(
            workers=[report for report in workers.values() if report is not None],
            instructions={worker: said for worker, said in instructions.items() if said is not None},
            lead=lead,
            unreadable=(
                *(f"the report of {worker}" for worker, report in workers.items() if report is None),
                *(f"what {worker} is told" for worker, said in instructions.items() if said is None),
                *(() if is_known else ("who leads",)),
            ),
        )

    async def _lead(self) -> tuple[Lead, bool]:
        """Who leads, and whether that could be read; else nobody does, or nobody ever would."""
        kept = await self._log.records(LEADS, [_LEAD])
        if not kept:
            return Lead(), True
        held = _read(kept[0].value, _Held)
        leads = held is not None and held.until > self._clock.now()
        return Lead(manager=held.manager if held and leads else None, version=kept[0].version), bool(held)

    async def direct_work(self, orders: Orders) -> Lead:
        """Lead, and tell workers what to do. Conflict, and nothing is changed, if another leads by now."""
        _check_orders(orders)
        held = _Held(manager=orders.manager, until=0 if orders.resigns else self._in(LEAD_SECONDS))
        lead = Record(LEADS, _LEAD, _encode(held), version=orders.version)
        until = self._in(INSTRUCTION_SECONDS)
        told = [
            Record(
                INSTRUCTIONS, worker, _encode(Instructions(manager=orders.manager, processors=given)), until
            )
            for worker, given in orders.instructions.items()
        ]
        await self._log.commit(records=[lead, *told])
        return Lead(manager=None if orders.resigns else orders.manager, version=orders.version + 1)

    def _in(self, seconds: float) -> int:
        return self._clock.now() + round(seconds * _SECOND)


def _read(value: bytes, form: type[T]) -> T | None:
    """What a record says; None if it can't be read."""
    try:
        return msgspec.msgpack.decode(value, type=form)
    except (msgspec.MsgspecError, ValueError):
        return None


def _read_report(value: bytes) -> WorkerReport | None:
    report = _read(value, WorkerReport)
    try:
        if report is not None:
            check_report(report)
    except Rejected:
        return None
    return report


def check_report(report: WorkerReport) -> None:
    """Rejected if a report can't be."""
    _check_name(report.worker, "a worker")
    _check_count(report.processors, "processors")
    if len(report.queues) > QUEUES_MAX:
        raise Rejected(f"a worker with {len(report.queues)} queues", hint=f"report up to {QUEUES_MAX}")
    for queue, found in report.queues.items():
        _check_name(queue, "a queue")
        _check_count(found.processors, f"processors for {queue}")
        _check_count(found.processors_max, f"processors at most for {queue}")
        seconds = found.seconds_per_task
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise Rejected(f"a task of {queue} takes {seconds} s", hint="give seconds, or nothing")


def _check_orders(orders: Orders) -> None:
    _check_name(orders.manager, "a Manager")
    if len(orders.instructions) > WORKERS_MAX:
        raise Rejected(f"{len(orders.instructions)} workers at once", hint=f"tell up to {WORKERS_MAX}")
    for worker, given in orders.instructions.items():
        _check_name(worker, "a worker")
        if len(given) > QUEUES_MAX:
            raise Rejected(f"{len(given)} queues for {worker}", hint=f"name up to {QUEUES_MAX}")
        for queue, count in given.items():
            _check_name(queue, "a queue")
            _check_count(count, f"processors for {queue}")


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= NAME_MAX:
        raise Rejected(f"the name of {what} has {len(name)} characters", hint=f"give 1 to {NAME_MAX}")


def _check_count(count: int, what: str) -> None:
    if not 0 <= count <= PROCESSORS_MAX:
        raise Rejected(f"{count} {what}", hint=f"give 0 to {PROCESSORS_MAX}")
