"""Opening a log by its address: the only place that names the implementations.

| address | log |
|---|---|
| `sqlite:///folder/file.db`, `sqlite:////absolute/file.db` | one file, embedded; the default |
| `postgresql://user@host/database` | a PostgreSQL database; needs the `postgres` extra |
| `memory://` | nothing survives the process; for tests |
"""

from pathlib import Path

from forebay.log.memory import MemoryLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.model import Clock, Limits, Misconfigured

__all__ = ["DEFAULT_STORE", "open_log"]

DEFAULT_STORE = "sqlite:///forebay-data/forebay.db"
"""Where an embedded Forebay keeps its data, below the current folder."""


def open_log(url: str = DEFAULT_STORE, *, clock: Clock | None = None, limits: Limits | None = None) -> Log:
    """The log at an address, to be entered with `async with`. The default folder is made if missing."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise Misconfigured(f"{url!r} is no address of a log", hint=_schemes())
    if scheme == "memory":
        return MemoryLog(clock=clock, limits=limits)
    if scheme == "sqlite":
        return SqliteLog(_sqlite_path(url, rest), clock=clock, limits=limits)
    if scheme in ("postgresql", "postgres"):
        return _postgres_log(url, clock, limits)
    raise Misconfigured(f"there is no log for {scheme}://", hint=_schemes())


def _sqlite_path(url: str, rest: str) -> Path:
    if not rest.startswith("/") or rest == "/":
        text = f"{url!r} names no file"
        raise Misconfigured(text, hint="write sqlite:///file.db, or sqlite:////path/to/file.db")
    path = Path(rest[1:])
    if url == DEFAULT_STORE:
        path.parent.mkdir(exist_ok=True)
    return path


def _postgres_log(url: str, clock: Clock | None, limits: Limits | None) -> Log:
    try:
        from forebay.log.postgres import PostgresLog  # noqa: PLC0415 - only with the postgres extra
    except ModuleNotFoundError as error:
        text = "PostgreSQL needs asyncpg"
        raise Misconfigured(text, hint="pip install 'forebay[postgres]'") from error
    return PostgresLog(url, clock=clock, limits=limits)


def _schemes() -> str:
    return "use sqlite:///file.db, postgresql://user@host/database or memory://"
