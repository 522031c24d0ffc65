"""A worker's file of settings, read again when it changes.

Invariants: a file that can't be read, or isn't right, changes nothing, and is said once; so is one that is
about others only. It is looked at once a second, and read only when it has changed.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from forebay.file_watch import FileWatch
from forebay.model import ForebayError, Misconfigured
from forebay.work.paths import names_in, read_changes
from forebay.work.worker import Worker

__all__ = ["SettingsFile"]

logger: Final = logging.getLogger("forebay.work")
LOOK_SECONDS: Final = 1.0
BYTES_MAX: Final = 1 << 20
_SHOWN_MAX: Final = 20


class SettingsFile:
    """See the module. `service` is the first part of the paths in it."""

    def __init__(self, path: Path, service: str, worker: Worker) -> None:
        self._path = path
        self._service = service
        self._worker = worker
        self._watch = FileWatch(path)

    def load(self) -> None:
        """Read it and have the worker go on with it; Misconfigured says what is wrong."""
        try:
            if self._path.stat().st_size > BYTES_MAX:
                raise Misconfigured(f"{self._path} has over {BYTES_MAX} bytes", hint="is it the right file?")
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"{self._path} can't be read: {error}") from None
        try:
            changes = read_changes(
                text, service=self._service, worker=self._worker.name, queues=self._worker.numbers()
            )
        except Misconfigured as error:
            raise Misconfigured(f"{self._path}: {error}") from None
        self._worker.configure(changes.queues, processors=changes.processors)
        if not changes.queues:
            self._warn(text)

    def _warn(self, text: str) -> None:
        """Say that a file changes nothing, though it has something in it: most often a name is wrong."""
        names = names_in(text, service=self._service)
        if names is None:
            return
        if names:
            mine = ", ".join([self._worker.name, *self._worker.numbers()])
            why = f"it is about {', '.join(names[:_SHOWN_MAX])}, and this worker and its queues are {mine}"
        else:
            why = f"no path in it begins with {self._service}/worker/queue/"
        logger.warning("%s changes nothing here: %s", self._path, why)

    def look(self) -> bool:
        """Load it if it has changed; whether it was."""
        if not self._watch.has_changed():
            return False
        try:
            self.load()
        except ForebayError as error:
            logger.error("settings stay as they are: %s", error)  # noqa: TRY400 - it says enough
        return True

    async def watch(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()
