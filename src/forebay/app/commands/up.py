"""`forebay up`: the server, and beside it a worker and a pipeline where they are configured, and the fold.

Each is a process of its own, which is started again when it ends by itself. Invariants: nothing is started
before the server listens; a signal ends all of them within 15 seconds, those first that need the server; a
second one at once; who is killed takes them along.
"""

import argparse
import ctypes
import logging
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from forebay.app.commands.fold_setup import spark_trouble
from forebay.app.commands.readiness import READY_VARIABLE
from forebay.app.configuring import file_faults, load_from, misconfigured
from forebay.app.configuring.flags import FLAGS, OF_SERVER
from forebay.app.flow_file import read_flow_file
from forebay.app.logs import set_up_logs
from forebay.app.settings import Settings
from forebay.model import Misconfigured, redact
from forebay.observe.programs import Program, ProgramState, programs_file, write_programs
from forebay.spark.flows.supervision import GOOD_SECONDS, Supervised
from forebay.spark.session import require_spark
from forebay.wire.port import listen

__all__ = ["up"]

LOOK_SECONDS: Final = 0.1
HELPERS_SECONDS: Final = 11.0
"""How long worker and pipeline have to end before the server does."""
STOP_SECONDS: Final = 14.0
"""How long all of them have."""
_DIES_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux."""

_REFUSED: Final = 3
"""The status of a program that has said what is wrong: where it does so at once, it would say so again."""

logger: Final = logging.getLogger("forebay.app")


def up(arguments: argparse.Namespace) -> int:
    """Run everything until a signal; the server's status, where it can't be started."""
    loaded = load_from(arguments)
    if faults := file_faults(loaded):
        raise misconfigured(faults)
    settings = loaded.settings
    set_up_logs(settings.logging.format, settings.logging.level)
    _check(settings)
    server = Child("server", ["serve", *_flags(arguments)], said=True)
    return _Up(server, settings, _flags(arguments, ("--data", "--store", "--warm"))).run()


def _check(settings: Settings) -> None:
    """Say what is wrong with the flows before anything is started."""
    if settings.up.flows is None:
        return
    require_spark("flows need Spark")
    named = read_flow_file(settings.up.flows).store
    if named is not None and named != settings.store.address:
        text = f"the flows are told another store than the server: {redact(named)}"
        raise Misconfigured(text, hint="leave out `store` in the file of flows", key="store.url")
    if settings.store.address.startswith("memory:"):
        text = "memory:// is within one process, and flows run in another"
        raise Misconfigured(text, hint="leave out --store for a SQLite file", key="store.url")


def _flags(arguments: argparse.Namespace, names: Sequence[str] = OF_SERVER) -> list[str]:
    """What was said on the command line, for the server, or another program."""
    found = ["--config", arguments.config] if arguments.config else []
    for flag in FLAGS:
        text = getattr(arguments, flag.attribute, None)
        if flag.name in names and text is not None:
            found += [flag.name] if not flag.metavar else [flag.name, text]
    return found


class Child:
    """A process of ours, and what is known of it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        said: bool = False,
        variables: Mapping[str, str] | None = None,
        ready: Path | None = None,
    ) -> None:
        self.name = name
        self._ready = ready
        """The file that it makes once it is at work; None where it is at once."""
        self.known = Supervised(due_at=0.0)
        self._command = [sys.executable, "-m", "forebay.app.cli", *command]
        self._said = said
        self._variables = dict(variables or {})
        if ready is not None:
            self._variables[READY_VARIABLE] = str(ready.absolute())
        self._process: subprocess.Popen[str] | None = None

    @property
    def status(self) -> int | None:
        """With what it ended; None while it runs, and before."""
        return None if self._process is None else self._process.poll()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it has come up."""
        return self.is_alive and (self._ready is None or self._ready.exists())

    def start(self, now: float) -> None:
        """Start it, in a session of its own: signals of the terminal come by us, and once."""
        self._hang_up()
        if self._ready is not None:
            self._ready.unlink(missing_ok=True)
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            self._command,
            env={**os.environ, **self._variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._said else None,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads yet that could hold a lock
        )
        self.known = self.known.started(now)

    def first_line(self, ending: threading.Event) -> str:
        """What it says first; empty when it ended before that, or nobody waits for it any more."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is listened to"
        while not ending.is_set():
            if select.select([self._process.stdout], [], [], LOOK_SECONDS)[0]:
                return self._process.stdout.readline().strip()
        return ""

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.is_alive and self._process is not None:
            self._process.send_signal(number)

    def wait(self, until: float) -> bool:
        """Whether it has ended by then."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self._hang_up()
        if self._ready is not None:
            self._ready.unlink(missing_ok=True)
        return True

    def _hang_up(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_DIES_WITH_PARENT, signal.SIGTERM)


class _Up:
    """The server and its helpers."""

    def __init__(self, server: Child, settings: Settings, shared: Sequence[str] = ()) -> None:
        self._server = server
        self._shared = shared
        """What was said on the command line of the log, and where the snapshot is."""
        self._settings = settings
        self._helpers: list[Child] = []
        self._missing: list[Program] = []
        self._noted: list[object] = []
        self._file = programs_file(settings.store.data)
        self._ending = threading.Event()
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def run(self) -> int:
        """Until a signal, or until the server can't be started."""
        self._server.start(time.monotonic())
        address = self._server.first_line(self._ending)
        if self._ending.is_set():
            return self._stop()
        if not address:
            self._server.wait(time.monotonic() + STOP_SECONDS)
            return self._server.status or 3
        print(address, flush=True)  # noqa: T201 - the command's data
        self._helpers = [*_helpers(self._settings, address), *self._snapshot()]
        while not self._ending.is_set():
            for child in (self._server, *self._helpers):
                _look_after(child)
            self._note()
            self._ending.wait(LOOK_SECONDS)
        return self._stop()

    def _note(self) -> None:
        """Write down how the helpers are, for the server's page, where that has changed."""
        known: list[object] = [(child.name, child.known, child.is_ready) for child in self._helpers]
        if known == self._noted:
            return
        self._noted = known
        try:
            write_programs(self._file, [*self._missing, *map(program_of, self._helpers)])
        except OSError as error:
            logger.debug("how the programs are can't be written down: %s", error)

    def _snapshot(self) -> list[Child]:
        """The fold of rich series, where it can run; where it can't, the rest goes on."""
        if not self._settings.up.snapshot or self._settings.store.address.startswith("memory:"):
            return []
        trouble = spark_trouble()
        if trouble is not None:
            logger.warning("no rich series on Spark: %s", trouble)
            self._missing.append(Program(name="snapshot", state="missing", reason=redact(trouble)))
            return []
        logger.info("rich series on Spark come up beside the server, in some 20 s")
        shown = _metrics("snapshot", self._settings.up.snapshot_metrics)
        ready = ready_file(self._settings, "snapshot")
        return [Child("snapshot", ["snapshot", "run", *self._shared, *shown], ready=ready)]

    def _heard(self, number: int, _: FrameType | None) -> None:
        self._signals += 1
        self._ending.set()
        if self._signals > 1:
            for child in (*self._helpers, self._server):
                child.signal(signal.SIGKILL)
            os._exit(128 + number)

    def _stop(self) -> int:
        began = time.monotonic()
        for child in self._helpers:
            child.signal(signal.SIGTERM)
        for child in self._helpers:
            child.wait(began + HELPERS_SECONDS)
        self._server.signal(signal.SIGTERM)
        late = [each for each in (*self._helpers, self._server) if not each.wait(began + STOP_SECONDS)]
        for child in late:
            logger.warning("%s did not end in time, and is killed; nothing is lost by it", child.name)
            child.signal(signal.SIGKILL)
            child.wait(time.monotonic() + 1)
        self._file.unlink(missing_ok=True)
        logger.info("all stopped in %.1f s", time.monotonic() - began)
        return 0


def _helpers(settings: Settings, address: str) -> list[Child]:
    found = []
    if settings.up.worker is not None:
        shown = _metrics("worker", settings.up.worker_metrics)
        found.append(Child("worker", ["worker", settings.up.worker, "--store", address, *shown]))
    if settings.up.flows is not None:
        # By a variable: an address may have a password, and command lines are seen by everybody.
        variables = {"FOREBAY_STORE": settings.store.address}
        logs = ["--log-format", settings.logging.format, "--log-level", settings.logging.level]
        shown = _metrics("pipeline", settings.up.flows_metrics)
        command = ["pipeline", "run", settings.up.flows, *logs, *shown]
        ready = ready_file(settings, "pipeline")
        found.append(Child("pipeline", command, variables=variables, ready=ready))
    return found


def ready_file(settings: Settings, name: str) -> Path:
    """The file that a helper makes once it is at work."""
    return Path(settings.store.data) / f"up-{name}.ready"


def program_of(child: Child) -> Program:
    """How a helper is, for people."""
    known = child.known
    if known.state == "running":
        return Program(name=child.name, state="running" if child.is_ready else "starting", reason=known.error)
    again_at = None
    if known.state == "waiting" and known.error is not None:
        again_at = round((time.time() + known.due_at - time.monotonic()) * 1e6)
    state: ProgramState = "starting" if known.state == "waiting" and known.error is None else known.state
    return Program(name=child.name, state=state, reason=known.error, again_at=again_at)


def _metrics(name: str, address: str | None) -> list[str]:
    """Where a helper serves its numbers: nowhere, if the address is taken, since work comes first."""
    if address is None:
        return []
    try:
        listen(address).close()
    except Misconfigured as error:
        logger.warning("the numbers of the %s are not served: %s", name, error.message)
        return []
    return ["--metrics", address]


def _look_after(child: Child) -> None:
    now = time.monotonic()
    if child.known.state == "running" and not child.is_alive:
        status = child.status or 0
        if status == 0 and child.name == "pipeline":
            child.known = child.known.ended(now)
            logger.info("%s has nothing more to do", child.name)
            return
        spread = random.uniform(-1, 1)  # noqa: S311 - no secret
        refused = status == _REFUSED and now - child.known.since < GOOD_SECONDS
        child.known = child.known.failed(now, f"status {status}", spread)
        if refused and child.name != "server":
            child.known = child.known.given_up(now)
            logger.error("%s can't run as it is configured, and is not started again", child.name)
            return
        extra = {"status": status, "again_in_seconds": round(child.known.due_at - now, 1)}
        logger.error("%s ended by itself, and is started again", child.name, extra=extra)
    elif child.known.is_due(now):
        child.start(now)
        logger.info("%s runs", child.name)
