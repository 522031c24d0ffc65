"""The data source with a log that fails on purpose: at a chosen moment, once.

Executors and the driver's helpers are processes of their own: what has happened is told by files.
"""

import os
import signal
from pathlib import Path
from typing import Any, Self

from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.model import Unavailable
from forebay.spark.source import ForebayDataSource


class FaultyLog:
    """A log whose verbs die once: before or after they have done their work.

    Its address is followed by `#MOMENT:FILE`: `stage-kill` and `publish-kill` end the process after the verb,
    `publish-fail` fails before it, `publish-lose` loses its answer. The file says that it was so.
    """

    def __init__(self, url: str) -> None:
        url, _, fault = url.partition("#")
        self._moment, _, path = fault.partition(":")
        self._done = Path(path)
        self._log: Any = open_log(url)

    async def __aenter__(self) -> Self:
        await self._log.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._log.__aexit__(*error)

    async def stage(self, *given: Any) -> None:
        await self._log.stage(*given)
        if self._is_time("stage-kill"):
            os.kill(os.getpid(), signal.SIGKILL)

    async def publish(self, stage: str, ids: Any, **given: Any) -> Any:
        if ids and self._is_time("publish-fail"):
            raise RuntimeError("failed before publishing")
        receipt = await self._log.publish(stage, ids, **given)
        if ids and self._is_time("publish-kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if ids and self._is_time("publish-lose"):
            raise Unavailable("the answer was lost")
        return receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def _is_time(self, moment: str) -> bool:
        if moment != self._moment or self._done.exists():
            return False
        self._done.touch()
        return True


def open_faulty(url: str) -> Log:
    """Open a log that fails as its address says."""
    return FaultyLog(url)


class FaultySource(ForebayDataSource):
    """`format("faulty")`."""

    open_log = staticmethod(open_faulty)

    @classmethod
    def name(cls) -> str:
        return "faulty"
