"""Processes that run `forebay worker`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.work.victim import Note, notes_of
from tests.servers.forebay import environment
from tests.servers.process import ServerProcess, ServerUnavailableError, log_tail

__all__ = ["Victim"]


class Victim:
    """One process; `folder` has its notes, which all victims of a test share, and its logs."""

    def __init__(
        self, url: str, folder: Path, *flags: str, stuck_at: int = 0, stubborn: bool = False
    ) -> None:
        self._folder = folder
        self.log = folder / f"worker-{len(list(folder.glob('worker-*.log')))}.log"
        place = "tests.integration.work.victim:worker"
        self._process = ServerProcess.spawn(
            [sys.executable, "-W", "error", "-m", "forebay.app.cli", "worker", place, "--store", url, *flags],
            log=self.log,
            directory=folder,
            environment={
                **environment(),
                "VICTIM_NOTES": str(folder / "notes"),
                "VICTIM_STUCK_AT": str(stuck_at),
                "VICTIM_STUBBORN": "yes" if stubborn else "",
            },
        )
        self.pid = self._process.pid

    def notes(self) -> list[Note]:
        """What all victims have noted."""
        return notes_of(self._folder / "notes")

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
        """Wait for something that must come, while the process lives."""
        try:
            self._process.wait_ready(condition, seconds, self.log)
        except ServerUnavailableError as error:
            raise AssertionError(f"waited in vain: {what}; {error}") from error

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal, and don't wait."""
        os.kill(self.pid, sign)

    def wait(self, seconds: float = 30) -> int:
        """Wait for its end; its status."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it is alive."""
        self._process.end(signal.SIGKILL)

    def tail(self) -> str:
        """The end of what it said."""
        return log_tail(self.log)
