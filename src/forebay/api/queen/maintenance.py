"""Maintenance: pushes are held back on disk and pops bring nothing, until somebody says that it is over.

Both are switches in the log, so that all its servers follow them, within a second, and across restarts.
Invariants: a server that doesn't know yet how they stand replays nothing; what was pushed meanwhile comes to
the log once, by its block's id, and in order; a pop in maintenance is never answered at once, since clients
ask again at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Literal

from forebay.api.answers import Answer
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso_or_none
from forebay.log.values import Record
from forebay.model import ForebayError, Rejected

if TYPE_CHECKING:
    from forebay.api.calls import Call
    from forebay.api.context import Context
    from forebay.failover.failover import Failover
    from forebay.log.seam import Log

logger: Final = logging.getLogger("forebay.api")
SPACE: Final = "queen.system"
LOOK_SECONDS: Final = 1.0
"""How often it is looked how the switches stand."""
PAUSE_SECONDS: Final = 1.0
"""So long a pop that doesn't wait is held in maintenance."""
UNKNOWN: Final = "it isn't known yet whether there is maintenance"
ON: Final = "maintenance"
_MEGABYTE: Final = 1 << 20

Switch = Literal["push", "pop"]


class Maintenance:
    """Whether pushes and pops are held back."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._changing = asyncio.Lock()
        """Who looks must not undo what was switched after it looked."""
        self._resumed = asyncio.Event()
        self._takings: set[asyncio.Task[Any]] = set()
        self.push = False
        self.pop = False
        self.looked_at: int | None = None
        """When the switches were last seen (µs)."""

    # How they stand

    def begin(self) -> None:
        """Hold back what would be replayed, before the log is opened."""
        failover = self._context.failover
        if failover is not None:
            failover.create_by(self._context.desk.creation)
            failover.hold(UNKNOWN)

    async def look(self) -> None:
        """See how the switches stand; while the log is away they stay as they are."""
        async with self._changing:
            try:
                found = {kept.key for kept in await self._log.records(SPACE, ["push", "pop"])}
            except ForebayError:
                return
            self.looked_at = self._context.clock.now()
            self._apply(push="push" in found, pop="pop" in found)

    async def watch(self) -> None:
        """Look, time and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                logger.exception("it can't be seen whether there is maintenance; it is tried again")

    async def switch(self, switch: Switch, *, on: bool) -> None:
        """Switch for all servers: this one follows at once, the others within a second."""
        if on and switch == "push" and self._context.failover is None:
            text = "this server has no spool, so pushes can't be held back"
            raise Rejected(text, hint="set spool.enabled, or stop those who push")
        async with self._changing:
            await self._log.commit(records=[Record(SPACE, switch, b"1" if on else None)])
            if switch == "push":
                self._apply(push=on, pop=self.pop)
            else:
                self._apply(push=self.push, pop=on)

    @property
    def _log(self) -> Log:
        return self._context.desk.store.log

    def _apply(self, *, push: bool, pop: bool) -> None:
        if push != self.push:
            logger.info("pushes are held back in the spool" if push else "pushes are not held back any more")
        self.push, self.pop = push, pop
        failover = self._context.failover
        if failover is not None and push:
            failover.hold(ON)
        elif failover is not None:
            failover.let_go()
        if pop:
            for taking in self._takings:
                taking.cancel()
        else:
            self._resumed.set()
            self._resumed = asyncio.Event()

    # Pops

    def interrupts(self, taking: asyncio.Task[Any]) -> None:
        """Cancel a take that waits, should pops be paused meanwhile."""
        self._takings.add(taking)
        taking.add_done_callback(self._takings.discard)

    async def pause(self, seconds: float) -> None:
        """Wait until messages may be taken again, a while at most."""
        resumed = self._resumed
        try:
            async with asyncio.timeout(min(max(seconds, 0.0), PAUSE_SECONDS) or PAUSE_SECONDS):
                await resumed.wait()
        except TimeoutError:
            return


class SwitchForm(Body):
    """On or off."""

    enabled: bool | None = None


async def show(call: Call) -> Answer:
    """How the switches stand, and what this server has in its spool."""
    call.key.check("admin")  # it concerns the whole server, so a key for some queues doesn't do
    maintenance, failover = call.desk.maintenance, call.context.failover
    answer: dict[str, Any] = {"maintenanceMode": maintenance.push, "popMaintenanceMode": maintenance.pop}
    return Answer({**answer, **_buffer(failover)})


async def switch_push(call: Call) -> Answer:
    """Hold back pushes, or stop to."""
    on = await _wanted(call)
    await call.desk.maintenance.switch("push", on=on)
    said = "pushes are held back in the spool" if on else "what was held back is on its way"
    return Answer(
        {"maintenanceMode": on, **_buffer(call.context.failover), "message": f"Maintenance mode: {said}"}
    )


async def show_pop(call: Call) -> Answer:
    """Whether pops bring nothing."""
    call.key.check("admin")
    return Answer(_pop_answer(on=call.desk.maintenance.pop))


async def switch_pop(call: Call) -> Answer:
    """Let pops bring nothing, or stop to."""
    on = await _wanted(call)
    await call.desk.maintenance.switch("pop", on=on)
    return Answer(_pop_answer(on=on))


async def shared_state(call: Call) -> Answer:
    """What the servers of one log know of each other here: the switches, and when they were seen."""
    call.key.check("admin")
    maintenance = call.desk.maintenance
    return Answer(
        {
            "enabled": True,
            "maintenanceMode": maintenance.push,
            "popMaintenanceMode": maintenance.pop,
            "lastSeenAt": iso_or_none(maintenance.looked_at),
            "lookSeconds": LOOK_SECONDS,
        }
    )


async def _wanted(call: Call) -> bool:
    call.key.check("admin")
    form = await read(call, SwitchForm)
    if form.enabled is None:
        raise Rejected("enabled is required", hint='send {"enabled": true}')
    return form.enabled


def _pop_answer(*, on: bool) -> dict[str, Any]:
    said = "pops bring nothing" if on else "pops bring messages"
    return {"popMaintenanceMode": on, "message": f"Pop maintenance mode: {said}"}


def _buffer(failover: Failover | None) -> dict[str, Any]:
    """The spool of this server; each has its own."""
    if failover is None:
        return {"bufferedMessages": 0, "bufferHealthy": False, "bufferStats": None}
    status = failover.status()
    stats = {
        "pendingCount": status.pending,
        "failedCount": status.failed,
        "dbHealthy": status.healthy,
        "failedFiles": {
            "count": status.files,
            "totalBytes": status.bytes,
            "totalMB": round(status.bytes / _MEGABYTE, 2),
            "failoverCount": status.pending,
            "qos0Count": 0,
        },
    }
    return {"bufferedMessages": status.pending, "bufferHealthy": status.healthy, "bufferStats": stats}


ROUTES: Final = (
    queen_route("GET", "/api/v1/system/maintenance", show, "Whether pushes are held back", scope="admin"),
    queen_route("POST", "/api/v1/system/maintenance", switch_push, "Hold back pushes", scope="admin"),
    queen_route("GET", "/api/v1/system/maintenance/pop", show_pop, "Whether pops are paused", scope="admin"),
    queen_route("POST", "/api/v1/system/maintenance/pop", switch_pop, "Pause pops", scope="admin"),
    queen_route("GET", "/api/v1/system/shared-state", shared_state, "What servers share", scope="admin"),
)
