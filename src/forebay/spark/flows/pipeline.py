"""All flows of a process: started, watched, started again; one's failure is no other's.

Invariants: what is started is stopped, also when another can't be; whoever asks for a stop waits no longer
than a bounded time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from forebay.spark.flows.blame import told
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.running import Running
from forebay.spark.flows.supervision import Supervised

LOOK_SECONDS: Final = 0.2
TEND_SECONDS: Final = 2.0
STOP_SECONDS: Final = 8.0
"""How long flows have to end; then they are left to the end of the process."""

logger: Final = logging.getLogger("forebay.spark")


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be kept running."""

    name: str
    type: str
    start: Callable[[], Running]
    numbers: FlowNumbers
    after: tuple[str, ...] = ()
    """Those that must be over before it is started."""
    remark: Callable[[], str] = str
    """Trouble that doesn't end it, for people; empty where there is none."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One flow, for people."""

    name: str
    type: str
    state: str
    error: str | None
    rows_per_second: float
    lag: int
    rows_in: int
    rows_out: int
    dead: int
    restarts: int
    last_rows: int
    last_seconds: float


class Pipeline:
    """Keeps units running; one that fails `tries_max` times in a row is given up, unless that is None."""

    def __init__(
        self,
        units: Sequence[Unit],
        *,
        tries_max: int | None = None,
        tend: Callable[[], dict[str, int]] = dict,
        report: Callable[[Sequence[Status]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = lambda: random.uniform(-1, 1),  # noqa: S311 - no secret
    ) -> None:
        self._units = {unit.name: unit for unit in units}
        self._known = {unit.name: Supervised(since=clock(), due_at=clock()) for unit in units}
        self._running: dict[str, Running] = {}
        self._tries_max = tries_max
        self._tend = tend
        self._report = report
        self._tend_at = clock()
        self._clock = clock
        self._spread = spread

    def run(self, ending: threading.Event, look: Callable[[], None] = lambda: None) -> None:
        """Keep everything running until it is told to end, or all is over; `look` is called in between."""
        while not ending.is_set():
            self.round()
            look()
            if self.is_over:
                return
            ending.wait(LOOK_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether every flow has ended by itself, or was given up."""
        return all(known.is_over for known in self._known.values())

    @property
    def trouble(self) -> str | None:
        """What is wrong, if something is."""
        failing = sorted(
            name for name, known in self._known.items() if known.state != "running" and known.error
        )
        return f"flows that fail: {', '.join(failing)}" if failing else None

    def round(self) -> None:
        """Look after every flow once."""
        for unit in self._units.values():
            self._look_after(unit)
        if self._clock() >= self._tend_at:
            self._tend_at = self._clock() + TEND_SECONDS
            self._tend_to_all()

    def _look_after(self, unit: Unit) -> None:
        known, now = self._known[unit.name], self._clock()
        running = self._running.get(unit.name)
        if running is not None:
            if running.is_active():
                self._known[unit.name] = known.well(now)
                return
            del self._running[unit.name]
            unit.numbers.running = 0
            error = running.error()
            if error is None:
                self._known[unit.name] = known.ended(now)
                logger.info("flow %s is done", unit.name)
            else:
                self._fail(unit, error)
        elif known.is_due(now) and all(self._known[name].is_over for name in unit.after):
            self._start(unit)

    def _start(self, unit: Unit) -> None:
        known = self._known[unit.name]
        try:
            self._running[unit.name] = unit.start()
        except Exception as error:  # noqa: BLE001 - one that can't be started is tried again, like one that fails
            self._fail(unit, error)
            return
        unit.numbers.running = 1
        unit.numbers.restarts += known.failures > 0
        self._known[unit.name] = known.started(self._clock())
        logger.info("flow %s runs", unit.name)

    def _fail(self, unit: Unit, error: BaseException) -> None:
        now = self._clock()
        after = self._known[unit.name].failed(now, told(error), self._spread())
        extra: dict[str, object] = {"flow": unit.name}
        if self._tries_max is not None and after.failures >= self._tries_max:
            after = after.given_up(now)
            text = f"flow %s failed, and is given up after {self._tries_max} tries: %s"
        else:
            extra["again_in_seconds"] = round(after.due_at - now, 1)
            text = "flow %s failed: %s"
        self._known[unit.name] = after
        trace = error if logger.isEnabledFor(logging.DEBUG) else None
        logger.error(text, unit.name, after.error, extra=extra, exc_info=trace)

    def _tend_to_all(self) -> None:
        """Do what is done for all flows together, and note how far each is behind."""
        try:
            found = self._tend()
        except Exception as error:  # noqa: BLE001 - it is done again soon, and no flow waits for it
            logger.warning("redriven letters, and how far flows are behind, can't be looked at: %s", error)
            return
        for name, lag in found.items():
            self._units[name].numbers.lag = lag
        try:
            self._report(self.statuses())
        except Exception as error:  # noqa: BLE001 - likewise
            logger.debug("how flows are can't be written down: %s", error)

    def statuses(self) -> list[Status]:
        """All flows, in their order."""
        return [self._status(unit, self._known[unit.name]) for unit in self._units.values()]

    @staticmethod
    def _status(unit: Unit, known: Supervised) -> Status:
        numbers = unit.numbers
        state = "failed" if known.state != "running" and known.error else known.state
        return Status(
            name=unit.name, type=unit.type, state=state, error=known.error or unit.remark() or None,
            rows_per_second=numbers.rows_per_second, lag=numbers.lag, rows_in=numbers.rows_in,
            rows_out=numbers.rows_out, dead=numbers.dead, restarts=numbers.restarts,
            last_rows=numbers.last_rows, last_seconds=numbers.last_seconds,
        )  # fmt: skip

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop everything at once; False when something did not end in time."""
        stopping = [
            threading.Thread(target=_stop, args=(name, running), name=f"stop-{name}", daemon=True)
            for name, running in self._running.items()
        ]
        for thread in stopping:
            thread.start()
        until = time.monotonic() + seconds
        for thread in stopping:
            thread.join(max(0.0, until - time.monotonic()))
        for unit in self._units.values():
            unit.numbers.running = 0
        return not any(thread.is_alive() for thread in stopping)


def _stop(name: str, running: Running) -> None:
    try:
        running.stop()
    except Exception as error:  # noqa: BLE001 - the others are stopped all the same
        logger.warning("flow %s did not stop in good order: %s", name, told(error))
