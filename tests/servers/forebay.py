"""A Forebay server as a process of its own, on loopback."""

import json
import os
import shutil
import signal
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.servers.process import ServerProcess, free_port, log_tail

__all__ = ["ForebayServer", "environment"]

_ROOT: Final = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The variables of this process for a program of ours: its source, and none that set something for it."""
    ours = ("FOREBAY_", "FILE_BUFFER_", "QUEEN_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}"}


class ForebayServer:
    """One `forebay serve`; port and data survive restarts. Without a `store_url` it has a SQLite file.

    `limits` are those of `ServerLimits`, other keywords the other `ServerSettings`; `sections` are what else
    the configuration file has. `flags` and `variables` are given as a user would; `tls` is how it is asked.
    """

    def __init__(
        self,
        store_url: str | None = None,
        *,
        limits: Mapping[str, Any] | None = None,
        sections: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        self._tls = tls
        self._directory = Path(tempfile.mkdtemp(prefix="forebay-server-"))
        self._store_url = store_url
        self._flags = list(flags)
        self._variables = dict(variables or {})
        self._process: ServerProcess | None = None
        self.port = free_port()
        self.data = self._directory / "data"
        """The data folder."""
        self.config = self._directory / "forebay.yaml"
        self.log = self._directory / "server.log"
        """All that it said: its address first, then a JSON object a line."""
        self.status: int | None = None
        """How the last process ended."""
        server = {"listen": f"127.0.0.1:{self.port}", "limits": dict(limits or {}), **settings}
        self.config.write_text(json.dumps({"server": server, **(sections or {})}), encoding="utf-8")

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def store_url(self) -> str:
        """What it works on."""
        return self._store_url or f"sqlite:///{self.data}/forebay.db"

    @property
    def arguments(self) -> list[str]:
        """What the command `forebay` is called with."""
        store = [] if self._store_url is None else ["--store", self._store_url]
        return ["serve", "--config", str(self.config), "--data", str(self.data), *store, *self._flags]

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.running

    def start(self, *, ready: bool = True, timeout_seconds: float = 30) -> None:
        """Start it, and return once it can work; with `ready=False`, once it answers at all."""
        self._process = self.spawn()
        path = "/readyz" if ready else "/healthz"
        self._process.wait_ready(lambda: self.answers(path), timeout_seconds, self.log)

    def spawn(self) -> ServerProcess:
        """Start it, and wait for nothing."""
        return ServerProcess.spawn(
            [sys.executable, "-W", "error", "-m", "forebay.app.cli", *self.arguments],
            log=self.log,
            directory=self._directory,
            environment={**environment(), **self._variables},
        )

    def answers(self, path: str) -> bool:
        """Whether it answers 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5, context=self._tls) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    def signal(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal, and don't wait."""
        os.kill(self.pid, sign)

    def wait(self, timeout_seconds: float = 30) -> int:
        """Wait for its end; its status."""
        assert self._process is not None
        self.status = self._process.wait(timeout_seconds)
        return self.status

    def stop(self) -> int:
        """Stop in good order; the status with which it ended."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    def tail(self) -> str:
        """The end of what it said."""
        return log_tail(self.log)

    @property
    def rss_mb(self) -> float:
        """How much memory the process has, in megabytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        """Kill it and remove its data."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
