"""What servers share whose data are in a folder of their own: they stop, come back and leave nothing."""

import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.process import ServerProcess, free_port

__all__ = ["FolderServer"]


class FolderServer(ABC):
    """One server, its data in a directory that `close` removes. The port survives restarts."""

    def __init__(self, name: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"forebay-{name}-"))
        self._process: ServerProcess | None = None
        self.port = free_port()
        self.log = self._directory / "server.log"

    @abstractmethod
    def start(self, timeout_seconds: float = 30) -> None:
        """Start the server and return when it answers; nothing if it is up."""

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process is not None and self._process.running

    def stop(self) -> None:
        """Stop in good order: what it holds is written out. Nothing if it is down."""
        if self._process is not None:
            self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill with SIGKILL; the process is gone on return."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop in good order and start again, with the same data on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove its directory, log included."""
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
