"""What the commands do; `cli` declares them.

Data goes to standard output, everything else to standard error; `--json` makes the data one JSON
document.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from rich.console import Console

from forebay.app.demo import run_demo
from forebay.app.ledger import ledger_rows, ledger_table
from forebay.app.opening import DEFAULT_STORE, open_embedded, open_log
from forebay.log.seam import Log
from forebay.model import Rejected

__all__ = ["declare_demo", "declare_store", "demo", "ledger", "upkeep"]


def declare_store(parser: argparse.ArgumentParser) -> None:
    """The arguments of every command that opens a log."""
    parser.add_argument(
        "--store", metavar="URL", default=DEFAULT_STORE, help="the log (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_demo(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay demo`."""
    declare_store(parser)
    parser.add_argument(
        "--messages", type=int, metavar="N", default=100_000, help="how many (default: %(default)s)"
    )


def demo(arguments: argparse.Namespace) -> int:
    """Put, take and finish tasks, then print the ledger."""
    if arguments.messages < 1:
        raise Rejected(f"--messages is {arguments.messages}", hint="give 1 or more")

    async def run() -> int:
        errors = Console(stderr=True)
        async with open_embedded(arguments.store) as store:
            result = await run_demo(store, arguments.messages, errors)
            stats = await store.ledger()
        if arguments.json:
            _print_json({**msgspec.to_builtins(result), "ledger": ledger_rows(stats)})
        else:
            Console().print(ledger_table(stats))
            errors.print(
                f"{result.messages:,} tasks put, taken and done in {result.seconds:.1f} s; "
                f"they are kept in {arguments.store}",
                highlight=False,
            )
        return _verdict(row["difference"] for row in ledger_rows(stats))

    return asyncio.run(run())


def ledger(arguments: argparse.Namespace) -> int:
    """Print where all messages are; exit status 1 when something is missing."""

    async def run(log: Log) -> int:
        stats = await log.stats()
        rows = ledger_rows(stats)
        if arguments.json:
            _print_json(rows)
        else:
            Console().print(ledger_table(stats))
        return _verdict(row["difference"] for row in rows)

    return _with_log(arguments, run)


def upkeep(arguments: argparse.Namespace) -> int:
    """One round of upkeep: sweep the SQL inbox into blocks, drop what retention no longer holds."""

    async def run(log: Log) -> int:
        swept = await log.sweep()
        trimmed = await log.trim()
        figures = {"swept": swept, **msgspec.to_builtins(trimmed)}
        if arguments.json:
            _print_json(figures)
        else:
            for name, figure in figures.items():
                Console().print(f"{name:>10} {figure:,}", highlight=False)
        return 0

    return _with_log(arguments, run)


def _with_log(arguments: argparse.Namespace, run: Callable[[Log], Awaitable[int]]) -> int:
    async def opened() -> int:
        async with open_log(arguments.store) as log:
            return await run(log)

    return asyncio.run(opened())


def _verdict(differences: Any) -> int:
    return 1 if any(differences) else 0


def _print_json(value: Any) -> None:
    print(msgspec.json.encode(value).decode())  # noqa: T201 - the command's data
