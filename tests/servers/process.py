"""One server process: start it, wait until it is ready, signal it, know that it is gone.

Each process inherits the write end of a pipe, its *lifeline*, and so do the processes it forks.
End of file on the read end therefore means that the server and all its children are gone, without
looking for process ids.
"""

import atexit
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

__all__ = ["Account", "ServerProcess", "ServerUnavailableError", "free_port", "log_tail"]

Account = tuple[int, int]
"""User id and group id that a server runs under."""

_READY_CHECK_SECONDS: Final = 0.01
_LOG_TAIL_LINES: Final = 30


class ServerUnavailableError(RuntimeError):
    """A server's program is missing, or it did not start; the message holds the log's tail."""


def free_port() -> int:
    """Return a loopback port that nothing listens on.

    It lies below the range from which the kernel gives ports to outgoing connections: while a
    server is down no client's own connection, not even one to that very port, can take it.
    """
    random = SystemRandom()
    for _ in range(100):
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerUnavailableError("no free loopback port between 12000 and 32000 in 100 tries")


def log_tail(path: Path, lines: int = _LOG_TAIL_LINES) -> str:
    """Return the last lines of a log file, or a note that there is none."""
    if not path.exists():
        return f"(no log at {path.name})"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


class ServerProcess:
    """A running server. Made by `ServerProcess.spawn`; ended with `end`."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, name: str) -> None:
        self._process = process
        self._lifeline = lifeline
        self._name = name
        atexit.register(self._end_at_exit)

    @classmethod
    def spawn(
        cls,
        command: Sequence[str | Path],
        *,
        log: Path,
        directory: Path,
        environment: Mapping[str, str],
        account: Account | None = None,
    ) -> "ServerProcess":
        """Start `command` in `directory`, its output appended to `log`, as `account` if given."""
        read_end, write_end = os.pipe()
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [str(part) for part in command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=dict(environment),
                    pass_fds=(write_end,),
                    start_new_session=True,  # a Ctrl-C in the terminal is for the tests only
                    user=account[0] if account else None,
                    group=account[1] if account else None,
                    extra_groups=[] if account else None,
                )
        except OSError as error:
            os.close(read_end)
            raise ServerUnavailableError(f"cannot run {command[0]}: {error}") from error
        finally:
            os.close(write_end)
        return cls(process, read_end, Path(command[0]).name)

    @property
    def pid(self) -> int:
        """The process id of the server's first process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's first process is alive."""
        return self._process.poll() is None

    def wait_ready(self, ready: Callable[[], bool], timeout_seconds: float, log: Path) -> None:
        """Return once `ready()` is true; end the process and raise if that does not happen."""
        for _ in range(int(timeout_seconds / _READY_CHECK_SECONDS)):
            if ready():
                return
            try:
                status = self._process.wait(timeout=_READY_CHECK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            self.end(signal.SIGKILL)
            raise ServerUnavailableError(
                f"{self._name} ended with status {status} while starting; its log:\n{log_tail(log)}"
            )
        self.end(signal.SIGKILL)
        raise ServerUnavailableError(
            f"{self._name} was not ready after {timeout_seconds} s; its log:\n{log_tail(log)}"
        )

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the first process to end by itself, and return its status."""
        status = self._process.wait(timeout=timeout_seconds)
        self.end(signal.SIGKILL)  # its children, if any; and the lifeline
        return status

    def end(self, sign: signal.Signals, timeout_seconds: float = 30) -> None:
        """Send `sign` and return when the server and its children are gone; kill if too slow."""
        if self._lifeline < 0:
            return
        self._process.send_signal(sign)
        try:
            self._process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        gone, _, _ = select.select([self._lifeline], [], [], timeout_seconds)
        os.close(self._lifeline)
        self._lifeline = -1
        atexit.unregister(self._end_at_exit)
        if not gone:
            raise ServerUnavailableError(
                f"children of {self._name} still run {timeout_seconds} s after it ended"
            )

    def _end_at_exit(self) -> None:
        self.end(signal.SIGKILL, timeout_seconds=5)
