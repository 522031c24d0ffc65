"""The log: whether the database is there, what it is, and who holds it up.

Nothing is created and nothing is brought up to date: a checkup of a database leaves it as it is.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from forebay.app.checkup.finding import Finding, clock_finding, failure, ok, warning
from forebay.log.sqlfile import load_migrations, load_statements
from forebay.log.sqlite.versions import APPLICATION_ID
from forebay.log.values import REJECTED_MAX
from forebay.model import ForebayError, Misconfigured

__all__ = ["check_postgres", "check_sqlite"]

ANSWER_SECONDS: Final = 10.0
LISTED_MAX: Final = 10
"""Sessions that are listed by name."""


def check_sqlite(path: Path) -> Iterator[Finding]:
    """The file of a log."""
    yield ok("sqlite", f"library {apsw.sqlite_lib_version()}")
    if not path.exists():
        yield ok("database", f"{path} is made on first use")
        return
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        yield failure("database", f"{path} can't be opened: {error}", f"ls -l {path}")
        return
    try:
        owner, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
    except apsw.Error as error:
        yield failure("database", f"{path} can't be read: {error}", "restore it from a backup")
        return
    finally:
        connection.close()
    if owner != APPLICATION_ID:
        yield failure("database", f"{path} is no log of Forebay", "name another file with --store")
    else:
        yield ok("database", str(path))
        yield _judge_schema(version, len(load_migrations("forebay.log.sqlite")))


def _pragma(connection: apsw.Connection, name: str) -> int:
    found = connection.execute(f"PRAGMA {name}").fetchone()
    assert found is not None
    return int(found[0])


def _judge_schema(version: int, known: int) -> Finding:
    if version > known:
        text = f"schema {version}, made by a newer Forebay; this one knows {known}"
        return failure("schema", text, "pip install --upgrade forebay")
    if version < known:
        return ok("schema", f"{version}, brought to {known} on next use")
    return ok("schema", f"{version}, up to date")


async def check_postgres(url: str, snapshot_seconds: float) -> AsyncIterator[Finding]:
    """A PostgreSQL database: version, settings, schema, clock, and sessions that hold an old snapshot."""
    try:
        from forebay.log.postgres.database import MAJOR_MIN, in_our_words  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        yield failure("database", "PostgreSQL needs asyncpg", "pip install 'forebay[postgres]'")
        return
    import asyncpg  # noqa: PLC0415 - likewise

    connection = None
    try:
        with in_our_words():
            connection = await asyncpg.connect(url, timeout=ANSWER_SECONDS, command_timeout=ANSWER_SECONDS)
            findings = await _ask_postgres(connection, MAJOR_MIN, snapshot_seconds)
    except (ForebayError, ValueError) as error:
        text = error.message if isinstance(error, ForebayError) else str(error)
        refused = isinstance(error, (Misconfigured, ValueError))
        hint = "check host, port, database, user and password" if refused else "pg_isready -d URL"
        yield failure("database", text, hint)
        return
    finally:
        if connection is not None:
            connection.terminate()
    for finding in findings:
        yield finding


async def _ask_postgres(connection: Any, major_min: int, snapshot_seconds: float) -> list[Finding]:
    statements = load_statements("forebay.app.checkup")
    server = connection.get_server_version()
    text = f"PostgreSQL {server.major}.{server.minor}"
    findings = [
        ok("database", text)
        if server.major >= major_min
        else failure("database", f"{text} is too old", f"upgrade to {major_min} or newer")
    ]
    before = time.time()
    there = float(await connection.fetchval(statements["clock"]))
    findings.append(clock_finding("database clock", there - (before + time.time()) / 2))
    findings += [
        _judge_setting(row["name"], row["setting"]) for row in await connection.fetch(statements["settings"])
    ]
    known = len(load_migrations("forebay.log.postgres"))
    if await connection.fetchval(statements["has_schema"]):
        findings.append(_judge_schema(await connection.fetchval(statements["schema"]), known))
    else:
        findings.append(ok("schema", "made on first use"))
    if await connection.fetchval(statements["has_inbox"]):
        findings.append(_judge_inbox(await connection.fetchval(statements["rejected_rows"], REJECTED_MAX)))
    old: list[Finding] = []
    for name in ("old_sessions", "old_prepared", "old_slots"):
        rows = await connection.fetch(statements[name], snapshot_seconds, LISTED_MAX)
        old += [warning("old snapshot", row["text"], row["help"]) for row in rows]
    return findings + (old or [ok("old snapshot", f"no session holds one of {snapshot_seconds:g}s or more")])


def _judge_inbox(rejected: int) -> Finding:
    """Whether messages that were pushed with SQL reach no queue."""
    if not rejected:
        return ok("inbox", "no row is rejected")
    more = " or more" if rejected == REJECTED_MAX else ""
    return warning("inbox", f"{rejected:,}{more} rows are rejected, and reach no queue", "forebay inbox")


def _judge_setting(name: str, setting: str) -> Finding:
    if setting == "on":
        return ok(name, "on")
    text = f"{setting}: a crash of the machine can lose what was acknowledged, or break the database"
    return failure(name, text, f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();")


async def in_time(findings: AsyncIterator[Finding]) -> list[Finding]:
    """All findings, or one that says that it took too long."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(2 * ANSWER_SECONDS):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401 - what was found before the time was over counts too
    except TimeoutError:
        found.append(failure("database", "it doesn't answer in time", "try again, and see its load"))
    return found
