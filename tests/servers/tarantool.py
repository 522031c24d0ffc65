"""A throw-away Tarantool server on loopback, from Debian's package.

Its write-ahead log is synced before it answers, as in production, so that a killed server is an honest test.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.servers.folder import FolderServer
from tests.servers.process import ServerProcess, ServerUnavailableError

__all__ = ["TarantoolServer"]

_PROGRAM: Final = Path("/usr/bin/tarantool")
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_SETTINGS: Final = {
    "wal_mode": "'fsync'",
    "memtx_memory": str(256 << 20),
    "memtx_max_tuple_size": str(80 << 20),
    "log_level": "'warn'",
}
_USERS: Final = """
    box.schema.user.grant('guest', 'super')
    box.schema.user.create('bay', {password = 'p@ss:word'})
    box.schema.user.grant('bay', 'read,write,execute,create,alter', 'universe')
"""
"""Everybody may do everything; `bay` may do what Forebay needs."""
_GREETING: Final = 128


class TarantoolServer(FolderServer):
    """One server, its data in a directory that `close` removes. The port survives restarts.

    `settings` go on top of the defaults, as Lua expressions for `box.cfg`.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        if not _PROGRAM.exists():
            raise ServerUnavailableError(f"Tarantool is not on this machine: there is no {_PROGRAM}")
        super().__init__("tarantool")
        self._settings = _SETTINGS | dict(settings or {})

    @property
    def pid(self) -> int:
        """The server's process id; it must have been started."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def url(self) -> str:
        """The address; no password is needed."""
        return f"tarantool://127.0.0.1:{self.port}"

    def start(self, timeout_seconds: float = 30) -> None:
        """Start the server and return when it has recovered its data and listens."""
        if self.running:
            return
        program = self._directory / "start.lua"
        settings = "".join(f"    {name} = {value},\n" for name, value in self._settings.items())
        program.write_text(
            f"box.cfg{{\n{settings}}}\n"
            f"box.once('users', function()\n{_USERS}\nend)\n"
            f"box.cfg{{listen = '127.0.0.1:{self.port}'}}\n"
        )
        self._process = ServerProcess.spawn(
            [_PROGRAM, str(program)],
            log=self.log,
            directory=self._directory,
            environment=_ENVIRONMENT,
        )
        self._process.wait_ready(self._ready, timeout_seconds, self.log)

    def _ready(self) -> bool:
        """Listening comes last, so whoever is greeted can ask."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                return connection.recv(_GREETING).startswith(b"Tarantool")
        except OSError:
            return False
