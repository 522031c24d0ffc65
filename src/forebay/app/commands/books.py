"""The books: where all messages are, and the rounds that keep them so."""

import argparse
from collections.abc import Iterable

import msgspec
from rich.console import Console

from forebay.app.commands.arguments import declare_page
from forebay.app.commands.opened import (
    declare_embedded,
    declare_store,
    on_log,
    on_store,
    shown_url,
    store_url,
)
from forebay.app.commands.output import console, print_json, warn
from forebay.app.demo import run_demo
from forebay.app.ledger import ledger_rows, ledger_table
from forebay.log.seam import Log
from forebay.log.values import REJECTED_MAX
from forebay.model import Rejected
from forebay.store.seam import Store

__all__ = ["declare_demo", "declare_ledger", "demo", "ledger", "upkeep"]


def declare_ledger(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay ledger`."""
    declare_store(parser)
    parser.add_argument("--queue", metavar="NAME", help="only of this queue")
    declare_page(parser)


def declare_demo(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay demo`."""
    declare_embedded(parser)
    parser.add_argument(
        "--messages", type=int, metavar="N", default=100_000, help="how many (default: %(default)s)"
    )


@on_store
async def demo(store: Store, arguments: argparse.Namespace) -> int:
    """Put, take and finish tasks, then print the ledger."""
    if arguments.messages < 1:
        raise Rejected(f"--messages is {arguments.messages}", hint="give 1 or more")
    errors = Console(stderr=True)
    result = await run_demo(store, arguments.messages, errors)
    stats = await store.ledger()
    if arguments.json:
        print_json({**msgspec.to_builtins(result), "ledger": ledger_rows(stats)})
    else:
        Console().print(ledger_table(stats))
        errors.print(
            f"{result.messages:,} tasks put, taken and done in {result.seconds:.1f} s; "
            f"they are kept in {shown_url(store_url(arguments))}",
            highlight=False,
        )
    return _verdict(row["difference"] for row in ledger_rows(stats))


@on_store
async def ledger(store: Store, arguments: argparse.Namespace) -> int:
    """Print where all messages are; exit status 1 when something is missing."""
    from forebay.client import Client  # noqa: PLC0415 - who works on a file needs none of it

    if isinstance(store, Client) and arguments.limit is None and not arguments.after:
        stats = await store.last_ledger(queue=arguments.queue)
    else:
        stats = await store.ledger(queue=arguments.queue, after=arguments.after, limit=arguments.limit)
    rows = ledger_rows(stats)
    if stats.is_last_known:
        warn("the log is away: these are the last books, with what the server has spooled since")
    if stats.next is not None:
        warn(f"there are more queues; go on with --after {stats.next}")
    if arguments.json:
        print_json(rows)
    else:
        console().print(ledger_table(stats), markup=True)
    return _verdict(row["difference"] for row in rows)


@on_log
async def upkeep(log: Log, arguments: argparse.Namespace) -> int:
    """One round of upkeep: sweep the SQL inbox into blocks, drop what retention no longer holds."""
    swept = await log.sweep()
    trimmed = await log.trim()
    rejected = len(await log.inbox_rejected(0, REJECTED_MAX))
    figures = {"swept": swept, "rejected": rejected, **msgspec.to_builtins(trimmed)}
    if rejected:
        warn(f"{rejected:,} rows of the SQL inbox are rejected, and reach no queue; see `forebay inbox`")
    if arguments.json:
        print_json(figures)
    else:
        for name, figure in figures.items():
            Console().print(f"{name:>10} {figure:,}", highlight=False)
    return 0


def _verdict(differences: Iterable[int]) -> int:
    return 1 if any(differences) else 0
