"""Opening a store, or a log alone, by its address: the only place that names the implementations.

| address | log |
|---|---|
| `sqlite:///folder/file.db`, `sqlite:////absolute/file.db` | one file, embedded; the default |
| `postgresql://user@host/database` | a PostgreSQL database; needs the `postgres` extra |
| `tarantool://user:password@host:3301` | a Tarantool server; needs the `tarantool` extra |
| `memory://` | nothing survives the process; for tests |

A store may also be a server's: `http://host:6632`, `https://host`. So may a log that is opened alone, for
whoever has a key that may do everything.

The warm tier is this process's memory, or shared: `?warm=valkey://host:6379/0` at the end of the address, or
`warm="valkey://…"` (also `valkeys://`, `redis://`, `rediss://`, `unix://`); needs the `valkey` extra.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from forebay.log.memory import MemoryLog
from forebay.log.seam import Log
from forebay.log.sqlite import SqliteLog
from forebay.model import Clock, Limits, Misconfigured
from forebay.store.process import SpoolPlace
from forebay.store.seam import Store
from forebay.store.store import LogStore, StoreSettings
from forebay.warm.seam import Warm

if TYPE_CHECKING:
    from forebay.client import SyncClient

__all__ = [
    "DEFAULT_SERVER",
    "DEFAULT_STORE",
    "is_server",
    "open_embedded",
    "open_log",
    "open_store",
    "open_sync",
    "split_warm",
    "sqlite_path",
]

DEFAULT_SERVER = "http://127.0.0.1:6632"
"""Where a server listens unless it is told otherwise."""

DEFAULT_STORE = "sqlite:///forebay-data/forebay.db"
"""Where an embedded Forebay keeps its data, below the current folder."""
RETRY_SECONDS = 5.0
WARM_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")


def is_server(url: str) -> bool:
    """Whether an address is that of a server."""
    return url.partition("://")[0] in ("http", "https")


def open_store(
    url: str = DEFAULT_STORE,
    *,
    key: str | None = None,
    ca_file: str | Path | None = None,
    warm: str | None = None,
    settings: StoreSettings | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    worker: str | None = None,
    spool: str | Path | None = None,
) -> Store:
    """The store at an address, a server's or embedded, to be entered with `async with`.

    `key` is the API key for a server, `ca_file` has the certificates that the server's own is checked
    against, and `spool` is a folder that takes pushes while the server is away; a log needs none of them.
    `warm`, `settings` and `limits` are for a log: a server has its own.
    """
    if not is_server(url):
        if spool is not None:
            text = "a spool is for when a server is away, and this is a log"
            raise Misconfigured(text, hint="leave out spool, or name a server")
        return open_embedded(url, warm=warm, settings=settings, clock=clock, limits=limits, worker=worker)
    if warm is not None or settings is not None or limits is not None:
        text = "a server has its own warm tier, settings and limits"
        raise Misconfigured(text, hint="leave out warm, settings and limits, or give them to the server")
    from forebay.client import Client  # noqa: PLC0415 - who works on a file needs none of it

    return Client(url, key=key, ca_file=ca_file, clock=clock, worker=worker, spool=spool)


def open_sync(
    url: str,
    *,
    key: str | None = None,
    ca_file: str | Path | None = None,
    worker: str | None = None,
    spool: str | Path | None = None,
) -> SyncClient:
    """The client of a server for synchronous programs, to be entered with `with`, or closed at the end."""
    from forebay.client import SyncClient  # noqa: PLC0415 - likewise

    return SyncClient(url, key=key, ca_file=ca_file, worker=worker, spool=spool)


def open_embedded(
    url: str = DEFAULT_STORE,
    *,
    warm: str | None = None,
    settings: StoreSettings | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    worker: str | None = None,
    guard: Callable[[Log], Log] | None = None,
    spool: SpoolPlace | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> LogStore:
    """The store that works a log and a warm tier in this process, to be entered with `async with`.

    `guard` puts something before the log, such as `Failover.guard`; `spool` is its spool.
    A log on a server repeats a write that fails for `retry_seconds`.
    """
    if is_server(url):
        text = "a server's log is not worked on by another store"
        raise Misconfigured(text, hint=_schemes())
    url, found = split_warm(url)
    if warm is not None and found is not None:
        text = "the warm tier is given twice: in the address and by `warm`"
        raise Misconfigured(text, hint="give it once")
    address = warm if warm is not None else found
    tier = _valkey_warm(address, clock) if address is not None else None
    log = open_log(url, clock=clock, limits=limits, retry_seconds=retry_seconds)
    before = log if guard is None else guard(log)
    return LogStore(before, tier, clock=clock, settings=settings, worker=worker, spool=spool)


def split_warm(url: str) -> tuple[str, str | None]:
    """The address without its `warm` parameter, and that."""
    address, _, query = url.partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    found = [value for name, value in parameters if name == "warm"]
    others = urlencode([(name, value) for name, value in parameters if name != "warm"])
    if not found:
        return url, None
    return (f"{address}?{others}" if others else address), found[-1]


def _valkey_warm(url: str, clock: Clock | None) -> Warm:
    scheme = url.partition("://")[0]
    if scheme not in WARM_SCHEMES:
        text = f"there is no warm tier for {scheme}://"
        raise Misconfigured(text, hint=f"use one of {', '.join(f'{s}://' for s in WARM_SCHEMES)}")
    from forebay.warm.valkey import ValkeyWarm  # noqa: PLC0415 - only with the valkey extra

    return ValkeyWarm(url, clock=clock)


def open_log(
    url: str = DEFAULT_STORE,
    *,
    key: str | None = None,
    ca_file: str | Path | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> Log:
    """The log at an address, to be entered with `async with`. The default folder is made if missing.

    It may be a server's: then `key` is an API key with the scope `admin`, and `ca_file` has the certificates
    that the server's own is checked against. A server has its own clock and limits.
    """
    if is_server(url):
        return _server_log(url, key, ca_file, clock, limits)
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise Misconfigured(f"{url!r} is no address of a log", hint=_schemes())
    if scheme == "memory":
        return MemoryLog(clock=clock, limits=limits)
    if scheme == "sqlite":
        path = sqlite_path(url)
        if url == DEFAULT_STORE:
            path.parent.mkdir(exist_ok=True)
        return SqliteLog(path, clock=clock, limits=limits)
    if scheme in ("postgresql", "postgres"):
        return _postgres_log(url, clock, limits, retry_seconds)
    if scheme == "tarantool":
        return _tarantool_log(url, clock, limits, retry_seconds)
    raise Misconfigured(f"there is no log for {scheme}://", hint=_schemes())


def _server_log(
    url: str, key: str | None, ca_file: str | Path | None, clock: Clock | None, limits: Limits | None
) -> Log:
    if clock is not None or limits is not None:
        text = "a server has its own clock and limits"
        raise Misconfigured(text, hint="leave out clock and limits, or give limits to the server")
    from forebay.client.log import http_log  # noqa: PLC0415 - who works on a file needs none of it

    return http_log(url, key=key, ca_file=ca_file)


def sqlite_path(url: str) -> Path:
    """The file that an address names."""
    rest = url.partition("://")[2]
    if not rest.startswith("/") or rest == "/":
        text = f"{url!r} names no file"
        raise Misconfigured(text, hint="write sqlite:///file.db, or sqlite:////path/to/file.db")
    return Path(rest[1:])


def _postgres_log(url: str, clock: Clock | None, limits: Limits | None, retry_seconds: float) -> Log:
    try:
        from forebay.log.postgres import PostgresLog  # noqa: PLC0415 - only with the postgres extra
    except ModuleNotFoundError as error:
        text = "PostgreSQL needs asyncpg"
        raise Misconfigured(text, hint="pip install 'forebay[postgres]'") from error
    return PostgresLog(url, clock=clock, limits=limits, retry_seconds=retry_seconds)


def _tarantool_log(url: str, clock: Clock | None, limits: Limits | None, retry_seconds: float) -> Log:
    try:
        from forebay.log.tarantool import TarantoolLog  # noqa: PLC0415 - only with the tarantool extra
    except ModuleNotFoundError as error:
        text = "Tarantool needs asynctnt"
        raise Misconfigured(text, hint="pip install 'forebay[tarantool]'") from error
    return TarantoolLog(url, clock=clock, limits=limits, retry_seconds=retry_seconds)


def _schemes() -> str:
    return "use sqlite:///file.db, postgresql://user@host/database, tarantool://host:3301 or memory://"
