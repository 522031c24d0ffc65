"""The connections of PostgresLog: pool, schema, and PostgreSQL's errors in our words.

A connection that breaks gives Unavailable: whether the last statement was committed is not known then,
and the caller repeats it with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from importlib import resources
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from forebay.log.sqlfile import load_migrations
from forebay.model import Misconfigured, Rejected, Unavailable

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

PACKAGE: Final = "forebay.log.postgres"
MAJOR_MIN: Final = 14
CLOSE_SECONDS: Final = 5.0
"""How long connections may take to be closed in order: by then nobody waits for an answer."""
CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be made: a server that swallows the attempt is tried again."""

HELD_MAX: Final = 3
"""Connections that stay at hand while nobody uses them, beside the pool: two that write, one that syncs.

Whoever takes one of these pays nothing for the pool's own accounts.
"""
HELD_SECONDS: Final = 60.0
"""How long one may lie there: what is between us and the server may have forgotten it by then, silently."""

_SESSION: Final = {
    "application_name": "forebay",
    "jit": "off",
    # Plans are made once, from indexes: a fresh table without statistics must not tempt the planner
    # into reading it whole.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # What is read after a lock must be what its last holder committed, whatever the database's default.
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "60s",
}

_REFUSED = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ClientConfigurationError,
)
_BROKEN = (OSError, asyncio.TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_CLOSED: Final = "the handler is closed"
_AWAY = (
    *_BROKEN,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresIOError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.ConnectionDoesNotExistError,
)

_REPLACED: Final = ("XX000", "42704", "42883")
"""Internal error, undefined object, undefined function."""


class Database:
    """A pool of connections to one PostgreSQL database that holds a Forebay schema."""

    def __init__(self, dsn: str, *, connections_max: int, timeout_seconds: float) -> None:
        self._dsn = dsn
        self._connections_max = connections_max
        self._timeout = timeout_seconds
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._in_use: set[Connection] = set()
        self._held: list[tuple[PoolConnectionProxy[asyncpg.Record], float]] = []
        """The newest last, each with the time since when it lies there."""
        self._acquiring = 0

    async def open(self, spans: dict[str, int]) -> None:
        """Connect and bring the schema up to date. `spans` are the lengths of pieces, if it is new."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=0,  # nothing is tried, or logged, but when somebody needs a connection
                max_size=self._connections_max,
                timeout=min(self._timeout, CONNECT_SECONDS),
                command_timeout=self._timeout,
                server_settings=_SESSION,
                reset=_leave,
            )
            async with self.connection() as connection:
                await _migrate(connection, spans)
        except ValueError as error:  # a port that is no number
            await self.close()
            raise Misconfigured(f"PostgreSQL refuses the address: {error}", hint="check the port") from error
        except Unavailable as error:
            await self.close()
            error.hint = "see that it runs, and that the address is right"  # nobody has written anything yet
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give all connections back; cut those that the server doesn't answer on."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                async with asyncio.timeout(min(self._timeout, CLOSE_SECONDS)):
                    while self._held:
                        await pool.release(self._held.pop()[0])
                    await pool.close()
            except _AWAY:
                pool.terminate()

    def hang_up(self) -> None:
        """Cut the connections that are in use: whoever waits for an answer gets Unavailable."""
        for connection in list(self._in_use):
            _cut(connection)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection, with its errors in our words."""
        if self._pool is None:
            raise Unavailable("the log is closed", hint="open it again")
        pool = self._pool
        with in_our_words():
            connection = await self._take(pool)
            self._in_use.add(connection)
            try:
                yield connection
            except (*_BROKEN, RuntimeError, asyncio.CancelledError):
                # In what state it is, nobody knows; and to ask a server that is away takes long.
                _cut(connection)
                raise
            finally:
                self._in_use.discard(connection)
                await self._give_back(pool, connection)

    async def _take(self, pool: asyncpg.Pool[asyncpg.Record]) -> PoolConnectionProxy[asyncpg.Record]:
        """One that is at hand, or one of the pool."""
        while self._held:
            connection, since = self._held.pop()
            if monotonic() - since > HELD_SECONDS:
                _cut(connection)
            if not _is_lost(connection):
                return connection
            await pool.release(connection)
        self._acquiring += 1
        try:
            return await pool.acquire(timeout=self._timeout)
        finally:
            self._acquiring -= 1

    async def _give_back(
        self, pool: asyncpg.Pool[asyncpg.Record], connection: PoolConnectionProxy[asyncpg.Record]
    ) -> None:
        """Keep it at hand, unless it is broken, or somebody waits at the pool, or there are enough."""
        is_wanted = not self._acquiring and self._pool is pool and len(self._held) < HELD_MAX
        if is_wanted and not _is_lost(connection):
            self._held.append((connection, monotonic()))
        else:
            await pool.release(connection)

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Connection]:
        """A connection within a transaction."""
        async with self.connection() as connection, connection.transaction(**options):
            yield connection


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """Say Unavailable for what may pass by itself, Misconfigured or Rejected for what won't."""
    try:
        yield
    except _REFUSED as error:
        text = f"PostgreSQL refuses the address: {error}"
        raise Misconfigured(text, hint="check host, port, database, user and password") from error
    except asyncpg.InsufficientPrivilegeError as error:
        text = f"PostgreSQL forbids the user to keep a log there: {error}"
        raise Misconfigured(
            text, hint="grant CREATE on the database, and all on its schema forebay"
        ) from error
    except _AWAY as error:
        raise _away(error) from error
    except RuntimeError as error:
        # uvloop's word for a connection that was reset, where asyncpg writes to it before it has heard.
        if _CLOSED not in str(error):
            raise
        raise _away(error) from error
    except asyncpg.DataError as error:
        raise Rejected(f"PostgreSQL can't store this: {error}", hint="check the values") from error
    except asyncpg.PostgresError as error:
        if error.sqlstate not in _REPLACED:
            raise
        text = f"PostgreSQL misses what this call needs, as while its functions are replaced: {error}"
        raise Unavailable(text, hint="try again with the same id", retry_after_seconds=1.0) from error


def _cut(connection: Connection) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # it was lost meanwhile, and the pool has it back
        connection.terminate()


def _is_lost(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has noticed first, and has it back
        return True


def _away(error: Exception) -> Unavailable:
    text = f"PostgreSQL is away: {str(error) or type(error).__name__}"
    hint = "try again with the same id: whether it was written is not known"
    return Unavailable(text, hint=hint, retry_after_seconds=1.0)


async def _leave(_connection: Connection) -> None:
    """Nothing to reset: sessions are never changed, so giving one back costs no round trip."""


async def _migrate(connection: Connection, spans: dict[str, int]) -> None:
    server = connection.get_server_version()
    if server.major < MAJOR_MIN:
        raise Misconfigured(f"PostgreSQL {server.major} is too old", hint=f"use {MAJOR_MIN} or newer")
    migrations = load_migrations(PACKAGE)
    functions = (resources.files(PACKAGE) / "functions.sql").read_text(encoding="utf-8")
    digest = sha256(functions.encode()).hexdigest()
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('forebay.schema'))")
        version, installed = await _installed(connection)
        if version > len(migrations):
            text = (
                f"the database was made by a newer Forebay: its schema is {version}, "
                f"this one knows {len(migrations)}"
            )
            raise Misconfigured(text, hint="upgrade this Forebay, or use another database")
        for migration in migrations[version:]:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO forebay.schema_version (number, name) VALUES ($1, $2)",
                migration.number,
                migration.name,
            )
        for parent, us in spans.items():
            await connection.execute(
                "INSERT INTO forebay.span VALUES ($1, $2) ON CONFLICT DO NOTHING", parent, us
            )
        if installed != digest:
            await connection.execute(functions)
            await connection.execute("UPDATE forebay.functions SET digest = $1", digest)


async def _installed(connection: Connection) -> tuple[int, str | None]:
    if await connection.fetchval("SELECT to_regclass('forebay.schema_version')") is None:
        await connection.execute(
            """
            CREATE SCHEMA IF NOT EXISTS forebay;
            CREATE TABLE forebay.schema_version (
                number int PRIMARY KEY,
                name text NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now()
            );
            CREATE TABLE forebay.functions (digest text);
            INSERT INTO forebay.functions VALUES (NULL);
            """
        )
    version = await connection.fetchval("SELECT coalesce(max(number), 0) FROM forebay.schema_version")
    return version, await connection.fetchval("SELECT digest FROM forebay.functions")
