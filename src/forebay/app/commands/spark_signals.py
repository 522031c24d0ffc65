"""Signals of a program that runs Spark, and what Java says when all are told to end."""

import logging
import os
import signal
import threading
from socketserver import BaseServer
from types import FrameType
from typing import Any

from forebay.spark.session import end_java

__all__ = ["SparkSignals"]


class SparkSignals:
    """The first signal asks for an end, the second one doesn't wait for it."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self.running = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)
        for handler in logging.getLogger().handlers:
            handler.addFilter(self.is_news)
        self._quieten()

    def is_news(self, record: logging.LogRecord) -> bool:
        """Whether something is worth to be said: that Java is gone isn't, when all were told to end."""
        return not (self.ending.is_set() and record.name.partition(".")[0] in ("root", "py4j", "py"))

    def _quieten(self) -> None:
        """Likewise for what isn't logged: PySpark's listener for accumulators prints that Java is gone."""
        say = BaseServer.handle_error

        def handle_error(server: BaseServer, request: Any, client: Any) -> None:
            if not self.ending.is_set():
                say(server, request, client)

        BaseServer.handle_error = handle_error  # type: ignore[method-assign, assignment]  # its only way

    def _heard(self, number: int, _: FrameType | None) -> None:
        if self.ending.is_set() or not self.running:  # nothing is under way that could be ended in order
            end_java()
            os._exit(128 + number if self.ending.is_set() else 0)
        self.ending.set()
