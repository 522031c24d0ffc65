"""The file: one connection that writes and one that reads, each on a thread of its own.

Invariants: jobs of a session run one at a time, in the order they were given; a write is one
transaction, rolled back whole when its job raises; a connection whose disk failed is closed, and
the next one copies the write-ahead log into the file anew before anything is written, so that
nothing relies on pages that a failed sync may have lost.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from forebay.log.sqlfile import load_statements
from forebay.log.sqlite.errors import closed, translate

T = TypeVar("T")
Row = tuple[Any, ...]

BUSY_MILLISECONDS: Final = 5_000
SQL: Final = load_statements("forebay.log.sqlite")

_CONNECTION: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    "PRAGMA temp_store = MEMORY",
)


class Transaction:
    """The named statements, inside a transaction."""

    __slots__ = ("connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def rows(self, name: str, *values: Any) -> Iterable[Row]:
        """Give the rows of a query, read as they are asked for: change nothing until then."""
        return self.connection.execute(SQL[name], values)

    def row(self, name: str, *values: Any) -> Row | None:
        """Return the first row of a query."""
        found: Row | None = self.connection.execute(SQL[name], values).fetchone()
        return found

    def value(self, name: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        found = self.connection.execute(SQL[name], values).fetchone()
        return None if found is None else found[0]

    def run(self, name: str, *values: Any) -> int:
        """Change something, and return how many rows were."""
        self.connection.execute(SQL[name], values)
        return self.connection.changes()

    def many(self, name: str, rows: Iterable[Row]) -> None:
        """Run a statement once for each row of values."""
        self.connection.executemany(SQL[name], rows)


class Session:
    """One connection on its thread; it is opened by its first job."""

    def __init__(self, path: Path, name: str, *, writes: bool) -> None:
        self._path = path
        self._writes = writes
        self._connection: apsw.Connection | None = None
        self._failed = False
        self._durable = True
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(
            1, thread_name_prefix=f"forebay-sqlite-{name}"
        )

    async def run(
        self,
        job: Callable[[Transaction], T],
        *,
        durable: bool = True,
        before: Callable[[], None] | None = None,
    ) -> T:
        """Run a job in a transaction; without `durable` it may be lost when the power fails.

        What is to be done `before` it begins is done on the thread as well, while others may still write.
        """

        def work() -> T:
            if before is not None:
                before()
            return self._transaction(job, durable=durable)

        return await self.call(work)

    async def bare(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job outside any transaction."""
        return await self.call(lambda: self._guarded(job))

    async def call(self, work: Callable[[], T]) -> T:
        """Run something on the thread."""
        if self._executor is None:
            raise closed(self._path)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def close(self) -> None:
        """Close the connection after the jobs that wait; twice is fine."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(executor, self._disconnect)
        finally:
            executor.shutdown(wait=False)

    def _transaction(self, job: Callable[[Transaction], T], *, durable: bool) -> T:
        def work(connection: apsw.Connection) -> T:
            if durable is not self._durable:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")
            try:
                result = job(Transaction(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._guarded(work)

    def _guarded(self, job: Callable[[apsw.Connection], T]) -> T:
        try:
            return job(self._connect())
        except apsw.IOError as error:
            self._failed = True
            self._disconnect()
            raise translate(error, self._path) from error
        except apsw.Error as error:
            raise translate(error, self._path) from error

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            connection = connect(self._path, create=self._writes)
            try:
                if self._failed and self._writes:
                    _copy_anew(connection)
                if not self._writes:
                    connection.execute("PRAGMA query_only = ON")
            except apsw.Error:
                connection.close(True)
                raise
            self._connection, self._failed, self._durable = connection, False, True
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)


def connect(path: Path, *, create: bool) -> apsw.Connection:
    """Open the file with the settings that every connection has; the caller closes it."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(str(path), flags=flags)
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Without it, statements are compiled again whenever a value is bound that a plan may
        # depend on, which costs more than running them.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for pragma in _CONNECTION:
            connection.execute(pragma)
    except apsw.Error:
        connection.close(True)
        raise
    return connection


def data_version(connection: apsw.Connection) -> str:
    """Return what changes whenever another connection, of whatever process, has written to the file."""
    row = connection.execute("PRAGMA data_version").fetchone()
    assert row is not None
    return str(row[0])


def _copy_anew(connection: apsw.Connection) -> None:
    """Write what the write-ahead log holds into the file, and begin a new one."""
    row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if row is None or row[0]:
        raise apsw.BusyError("a reader holds up the recovery from a failed write")
