"""The schema of the file: whose it is, which version it has, how it is brought up to date.

Invariants: a file that is not a log, or a log of a newer Forebay, is left as it was; each
migration is one transaction, so a crash leaves the version before it or the one after.
"""

import time
from pathlib import Path
from typing import Final

import apsw

from forebay.log.sqlfile import Migration, load_migrations
from forebay.log.sqlite.connection import BUSY_MILLISECONDS
from forebay.log.sqlite.errors import newer_schema, not_a_log, translate
from forebay.model import Misconfigured

APPLICATION_ID: Final = 0x46425931
"""`FBY1`, where `file` and SQLite look for the owner of a database."""
MIGRATIONS: Final = load_migrations("forebay.log.sqlite")

_PAUSE_SECONDS: Final = 0.01
_NEW_FILE: Final = ("PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL")


def check_path(path: Path) -> None:
    """Refuse a path that cannot be a log's."""
    if str(path) == ":memory:":
        raise Misconfigured("a log in a file needs a path", hint="use memory:// for one in memory")
    if not path.parent.is_dir():
        raise Misconfigured(
            f"there is no folder {path.parent} for the log {path.name}",
            hint="make the folder first",
        )
    if path.is_dir():
        raise Misconfigured(f"{path} is a folder", hint="give the path of a file in it")


def prepare(path: Path, migrations: list[Migration] | None = None) -> None:
    """Create the file if need be, and bring its schema up to date."""
    steps = MIGRATIONS if migrations is None else migrations
    check_path(path)
    try:
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            _prepare_patiently(connection, path, steps)
        finally:
            connection.close(True)
    except apsw.NotADBError as error:
        raise not_a_log(path, "it is not an SQLite database") from error
    except apsw.CantOpenError as error:
        raise Misconfigured(f"{path} can't be opened", hint="check its permissions") from error
    except apsw.Error as error:
        raise translate(error, path) from error


def _prepare_patiently(connection: apsw.Connection, path: Path, steps: list[Migration]) -> None:
    """Try again while others make the file: SQLite gives up at once where both would wait."""
    deadline = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            _prepare(connection, path, steps)
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _prepare(connection: apsw.Connection, path: Path, steps: list[Migration]) -> None:
    with connection:  # at one moment, as another process may be making the file
        version = _pragma(connection, "user_version")
        owner = _pragma(connection, "application_id")
        fresh = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
    if owner != APPLICATION_ID and not (fresh and owner == version == 0):
        raise not_a_log(path, "it is a database of another program")
    if version > len(steps):
        raise newer_schema(path, version, len(steps))
    if fresh:
        for pragma in _NEW_FILE:
            connection.execute(pragma)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for step in steps[version:]:
        _migrate(connection, step)
    if (version := _pragma(connection, "user_version")) > len(steps):  # made so meanwhile
        raise newer_schema(path, version, len(steps))


def _migrate(connection: apsw.Connection, step: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _pragma(connection, "user_version")
        if version < step.number:  # another process may have been first
            connection.execute(step.sql)
            connection.execute(f"PRAGMA user_version = {step.number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: apsw.Connection, name: str) -> int:
    row = connection.execute(f"PRAGMA {name}").fetchone()
    assert row is not None
    return int(row[0])
