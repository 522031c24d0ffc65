"""`forebay doctor`: checks what a Forebay stands on, and says the command that helps."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import msgspec
from rich.text import Text

from forebay.app.checkup.finding import Finding, failure, ok
from forebay.app.checkup.logs import check_postgres, check_sqlite, in_time
from forebay.app.checkup.machine import check_folder, check_python
from forebay.app.checkup.secrets import check_encryption, check_jwt
from forebay.app.checkup.services import check_server, check_valkey
from forebay.app.checkup.spool import check_spool
from forebay.app.checkup.tarantool import check_tarantool
from forebay.app.commands.arguments import duration
from forebay.app.commands.opened import declare_store, store_url
from forebay.app.commands.output import console, print_json
from forebay.app.configuring import Reading, file_faults, read_from
from forebay.app.opening import is_server, split_warm, sqlite_path
from forebay.model import Misconfigured

__all__ = ["declare_doctor", "doctor"]

STYLES: Final = {"ok": "green", "warning": "yellow", "failure": "bold red"}
SCHEMES: Final = ("sqlite", "postgresql", "postgres", "tarantool", "memory", "http", "https")


def declare_doctor(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay doctor`."""
    declare_store(parser)
    parser.add_argument(
        "--config", metavar="FILE", help="the configuration file of the server (default: $FOREBAY_CONFIG)"
    )
    parser.add_argument(
        "--warm", metavar="URL", help="the warm tier (default: as in the address of the store)"
    )
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="the data folder (default: where an SQLite log is)"
    )
    parser.add_argument(
        "--snapshot-age", metavar="TIME", type=duration, default=60.0,
        help="how old a snapshot of PostgreSQL may be, in seconds or as 5m (default: %(default)s)",
    )  # fmt: skip


def doctor(arguments: argparse.Namespace) -> int:
    """Check everything that the address leads to; exit status 1 when something fails."""
    findings = asyncio.run(_check(arguments))
    failed = any(finding.level == "failure" for finding in findings)
    if arguments.json:
        print_json({"ok": not failed, "findings": findings})
    else:
        _print(findings)
    return 1 if failed else 0


async def _check(arguments: argparse.Namespace) -> list[Finding]:
    url, found = split_warm(store_url(arguments))
    warm = arguments.warm or found
    reading = read_from(arguments)
    findings = [*check_python(), *_check_settings(reading, arguments), *_secrets(reading)]
    findings += _spool(reading, arguments)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        text = f"the store's address names no store that there is ({scheme[:20]})"
        findings.append(failure("configuration", text, "set --store or FOREBAY_STORE to sqlite:///file.db"))
        return findings
    findings.append(ok("configuration", f"the store is {'a server' if is_server(url) else scheme}"))
    if arguments.data is not None:
        findings += check_folder(arguments.data)
    findings += await in_time(_store(url, arguments))
    if warm is not None:
        findings += await in_time(check_valkey(warm))
    return findings


async def _store(url: str, arguments: argparse.Namespace) -> AsyncIterator[Finding]:
    if is_server(url):
        async for finding in check_server(url):
            yield finding
    elif url.startswith("postgres"):
        async for finding in check_postgres(url, arguments.snapshot_age):
            yield finding
    elif url.startswith("tarantool"):
        async for finding in check_tarantool(url):
            yield finding
    elif url.startswith("sqlite"):
        for finding in _sqlite(url, with_folder=arguments.data is None):
            yield finding


def _sqlite(url: str, *, with_folder: bool) -> Iterable[Finding]:
    try:
        path = sqlite_path(url)
    except Misconfigured as error:
        yield failure("configuration", error.message, error.hint or "check --store")
        return
    if with_folder:
        yield from check_folder(path.parent)
    yield from check_sqlite(path)


def _check_settings(reading: Reading, arguments: argparse.Namespace) -> list[Finding]:
    """Whether a server would start with the file and this environment."""
    faults = reading.faults if reading.loaded is None else file_faults(reading.loaded)
    helps = f"forebay config check {arguments.config or ''}".rstrip()
    if faults:
        return [failure("settings", str(fault), helps) for fault in faults]
    return [ok("settings", "a server would start with them")]


def _secrets(reading: Reading) -> Iterable[Finding]:
    """What tokens are checked with, and what payloads are encrypted with."""
    if reading.loaded is None:
        return ()
    settings = reading.loaded.settings
    return [*check_jwt(settings.jwt), *check_encryption(settings.queen)]


def _spool(reading: Reading, arguments: argparse.Namespace) -> Iterable[Finding]:
    """The spool that a server with these settings would have."""
    if reading.loaded is None:
        return ()
    settings = reading.loaded.settings
    if not settings.spool.enabled:
        return [ok("spool", "switched off: pushes fail while the log is away")]
    if arguments.data is not None:
        store = msgspec.structs.replace(settings.store, data=str(arguments.data))
        settings = msgspec.structs.replace(settings, store=store)
    return check_spool(settings.spool_folder)


def _print(findings: Iterable[Finding]) -> None:
    out = console()
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level:<8}", STYLES[finding.level]), f"{finding.subject}: {finding.text}"
        )
        out.print(line, soft_wrap=True)
        if finding.help is not None:
            out.print(Text(f"        try: {finding.help}"), soft_wrap=True)
