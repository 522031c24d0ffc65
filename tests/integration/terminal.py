"""A real terminal for commands: a pseudo-terminal, and a screen that is drawn as a person would see it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

WAIT_SECONDS = 60.0
CHUNK_BYTES = 512


class Terminal:
    """Runs `forebay` with some arguments on a terminal of its own; ended with it."""

    def __init__(self, arguments: Sequence[str], cwd: Path, *, columns: int = 120, lines: int = 30) -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.modes = termios.tcgetattr(self._theirs)
        theirs = self._theirs
        self._process = subprocess.Popen(
            [sys.executable, "-m", "forebay.app.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def lines(self) -> list[str]:
        """The screen as it is."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines).strip()

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def wait_for(self, wanted: str | Callable[[str], Any]) -> str:
        """Draw what comes until the screen is as wanted; the screen."""
        is_there = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_there(self.text):
            assert time.monotonic() < deadline, f"it never came; the screen is\n{self.text}"
            assert self._draw(1.0) or self._process.poll() is None, f"it ended; the screen is\n{self.text}"
        return self.text

    def end(self) -> int:
        """Draw what comes until the command has ended; its exit status."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on; the screen is\n{self.text}"
            self._draw(0.05)
        while self._draw(0.0):
            pass
        return self._process.returncode

    def modes_now(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self._theirs)

    def _draw(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        # Little by little: what a later screen takes away again is looked at before.
        self._stream.feed(os.read(self._ours, CHUNK_BYTES))
        return True
