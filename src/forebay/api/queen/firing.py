"""Timers become messages when they are due: what a server does for that beside its requests.

Every server of a log looks; the log lets one of them win. Timers that are due together are written together,
in the order of their times. A timer that was made here, or seen by the last look, is on time; any other, such
as one that another server made, at most `LOOK_SECONDS` late. Invariants: the message is written in the write
that ends the timer; one that can't be written holds up no other, and is tried again ever more rarely.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from forebay.api.queen.messages import SEALED
from forebay.api.queen.timers import (
    DUE,
    PAYLOAD,
    SPACE,
    Due,
    Timer,
    chosen,
    deferred,
    fired,
    head_key,
    moment_of,
    orphaned,
    standings,
    timer_of,
)
from forebay.log.seam import VersionConflict
from forebay.log.values import Appended, Queue, Record
from forebay.model import Block, ForebayError, Message, Unavailable, queue_of

if TYPE_CHECKING:
    from forebay.api.queen.desk import Desk
    from forebay.log.seam import Log

logger: Final = logging.getLogger("forebay.api")
LOOK_SECONDS: Final = 1.0
"""How often it is looked what is due."""
TOGETHER_MAX: Final = 200
_BYTES_MAX: Final = 8 << 20
_FEWER: Final = 8
"""After a failure so many times fewer timers are tried together, down to one."""
_PAUSE_SECONDS: Final = 0.05
"""At most so long a server stands back that was too late."""
_AGAIN_SECONDS_MAX: Final = 60
_SECOND: Final = 1_000_000


class Firing:
    """See the module."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._together = TOGETHER_MAX
        self._heard = asyncio.Event()

    @property
    def _log(self) -> Log:
        return self._desk.store.log

    def hear(self) -> None:
        """Timers were made here."""
        self._heard.set()

    async def watch(self) -> None:
        """Look what is due, time and again."""
        while True:
            self._heard.clear()
            try:
                seconds = await self.round()
            except ForebayError:
                seconds = LOOK_SECONDS  # the log is away, or not open yet
            except Exception:
                logger.exception("timers that are due can't be seen to; it is tried again")
                seconds = LOOK_SECONDS
            await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return

    async def round(self) -> float:
        """Make messages of timers that are due; in how many seconds to look again."""
        if self._desk.maintenance.push:
            return LOOK_SECONDS
        now = self._desk.context.clock.now()
        page = await self._log.scan(DUE, limit=self._together)
        due = chosen(page, now, _BYTES_MAX)
        if due:
            return await self._try(due)
        ahead = (moment_of(page[0].key) - now) / _SECOND if page else LOOK_SECONDS
        return min(ahead, LOOK_SECONDS)

    async def _try(self, due: Sequence[tuple[str, Due]]) -> float:
        """See to entries that are due; fewer of them the next time if that fails, down to one."""
        try:
            await self._fire(due)
        except VersionConflict:  # another server was faster, or a client changed one of them
            self._together = max(1, self._together // _FEWER)
            return random.uniform(0, _PAUSE_SECONDS)  # noqa: S311 - nobody has to guess it
        except Unavailable:
            raise
        except ForebayError as error:
            if len(due) == 1:
                await self._defer(due[0][0], due[0][1], error)
            self._together = max(1, self._together // _FEWER)
            return 0.0
        self._together = min(TOGETHER_MAX, self._together * _FEWER)
        return 0.0

    async def _fire(self, due: Sequence[tuple[str, Due]]) -> None:
        log, desk = self._log, self._desk
        heads = standings(await log.records(SPACE, [head_key(d.queue, d.key) for _, d in due]))
        payloads = {kept.key: kept.value for kept in await log.records(PAYLOAD, [entry for entry, _ in due])}
        queues = {queue.number: queue for queue in await desk.queues_by({d.queue for _, d in due})}
        records: list[Record] = []
        lines: dict[tuple[int, str], list[Message]] = {}
        for entry, _ in due:
            found = heads.get(entry)
            if found is None or entry not in payloads:
                records += orphaned(entry)
                continue
            records += fired(found)
            timer = found.timer
            if timer.queue in queues:  # a queue that was deleted takes its timers along
                message = self._message(timer, payloads[entry], queues[timer.queue])
                lines.setdefault((timer.queue, timer.partition), []).append(message)
        await self._write(lines, queues, records)

    async def _write(
        self,
        lines: Mapping[tuple[int, str], Sequence[Message]],
        queues: Mapping[int, Queue],
        records: Sequence[Record],
    ) -> None:
        context = self._desk.context
        for number, partition in lines:
            await context.make_way(queues[number].name, [partition])
        now = context.clock.now()
        puts = [
            (queues[number].name, Block.of(messages, created_at=now))
            for (number, _), messages in lines.items()
        ]
        for appended in await self._desk.store.transact(puts, records=records):
            self._count(appended)

    def _message(self, timer: Timer, payload: bytes, queue: Queue) -> Message:
        """A timer as a message, sealed if its queue wants that by now."""
        desk, headers = self._desk, timer.headers
        options = desk.facts(queue).options
        if options.encryption_enabled and SEALED not in (headers or {}):
            payload, headers = desk.seal().seal(payload), {**(headers or {}), SEALED: "1"}
        begins = desk.windows.begin(queue.name, timer.partition, options)
        return Message(payload, timer.partition, timer.txn, headers, begins)

    def _count(self, appended: Appended) -> None:
        self._desk.context.counters.pushed(appended)
        if appended.count:
            self._desk.tally.pushed(queue_of(appended.first), appended.count)

    async def _defer(self, entry: str, due: Due, error: ForebayError) -> None:
        """Try a timer again later, so that it holds up no other."""
        heads = standings(await self._log.records(SPACE, [head_key(due.queue, due.key)]))
        payloads = await self._log.records(PAYLOAD, [entry])
        if entry not in heads or not payloads:
            return  # it changed meanwhile
        found = heads[entry]
        seconds = min(2**found.timer.attempts, _AGAIN_SECONDS_MAX)
        moment = self._desk.context.clock.now() + seconds * _SECOND
        logger.warning("a timer can't become a message: %s; it is tried again", error.message)
        try:
            await self._log.commit(records=deferred(found, payloads[0].value, moment, error.message))
        except VersionConflict:
            return

    async def forget(self, queue: int) -> None:
        """Remove the timers of a queue that is gone."""
        while page := await self._log.scan(SPACE, head_key(queue, "")):
            records = []
            for kept in page:
                entry = timer_of(kept.value).entry
                records += [Record(SPACE, kept.key), *orphaned(entry)]
            await self._log.commit(records=records)
