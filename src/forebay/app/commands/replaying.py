"""`forebay spool replay`: a folder of spool files into a store, oldest first.

Invariants: nothing is removed before it is in the store, or set aside with its reason; every block keeps its
id, so that what is replayed again, after an interruption or from a copy, is written once; however it ends, it
says how far it came.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from forebay.api.queen.spooled import creation_by
from forebay.app.commands.arguments import duration
from forebay.app.commands.bulk import declare_bulk, replay_bulk
from forebay.app.commands.draining import KnownOnly, Options, Outcome, Settle, StoreGoneError, drain
from forebay.app.commands.opened import declare_store, is_served, on_log, on_store, shown_url, store_url
from forebay.app.commands.output import print_json, print_table, warn
from forebay.app.commands.spool import (
    Checked,
    check_file,
    opened_folder,
    plural,
    said_lines,
    set_aside_text,
)
from forebay.disk import RealDisk
from forebay.failover import outcomes
from forebay.failover.sinks import LogSink, Sink, StoreSink
from forebay.log.seam import Log
from forebay.model import Rejected
from forebay.spool.checking import list_files
from forebay.spool.lines import SpooledSettlement
from forebay.spool.names import FAILED
from forebay.spool.recovering import recover
from forebay.store.seam import Store

__all__ = ["declare_replay", "replay"]


def declare_replay(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay spool replay`."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="+", help="the spool's folder; with --spark many of them"
    )
    declare_store(parser)
    parser.add_argument(
        "--no-create", action="store_true", help="set aside what is for queues that aren't there"
    )
    parser.add_argument(
        "--outcomes", action="store_true",
        help="replay what became of tasks, too: only into the very log that the server worked on",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the files where they are")
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")
    parser.add_argument(
        "--retry-for", metavar="TIME", type=duration, default=60.0,
        help="how long to try again while the store is away, in seconds or as 5m (default: %(default)s)",
    )  # fmt: skip
    declare_bulk(parser)


def replay(arguments: argparse.Namespace) -> int:
    """Replay a folder; exit status 1 when some of it is not in the store."""
    if arguments.spark:
        return replay_bulk(arguments)
    if len(arguments.folder) > 1:
        raise Rejected("one folder at a time", hint="or all of them at once on Spark: add --spark")
    if arguments.aside or arguments.remove or arguments.master:
        raise Rejected("--aside, --remove and --master are for --spark", hint="add it, or leave them out")
    (arguments.folder,) = arguments.folder
    opened_folder(arguments.folder)  # before anybody is asked for anything
    if store_url(arguments).partition("://")[0] == "memory":
        text = "memory:// forgets everything when this ends"
        raise Rejected(text, hint="name a server, sqlite:///file.db or postgresql://...")
    if arguments.outcomes and is_served(arguments):
        text = "outcomes of tasks can't go through a server"
        raise Rejected(text, hint="name its log: --store sqlite:///file.db or postgresql://...")
    return (_replay_to_server if is_served(arguments) else _replay_to_log)(arguments)


@on_store
async def _replay_to_server(store: Store, arguments: argparse.Namespace) -> int:
    async def known() -> set[str]:
        return {queue.name for queue in await store.queues()}

    sink: Sink = StoreSink(store, creation=creation_by)
    if arguments.no_create and not arguments.dry_run:
        sink = KnownOnly(sink, await known())  # a server would make them
    return await _replay(arguments, sink, known, settle=None)


@on_log
async def _replay_to_log(log: Log, arguments: argparse.Namespace) -> int:
    async def known() -> set[str]:
        return {queue.name for queue in await log.queues()}

    async def settle(entries: Sequence[SpooledSettlement]) -> int:
        return await outcomes.replay(log, entries)

    sink = LogSink(log, create_queues=not arguments.no_create, creation=creation_by)
    return await _replay(arguments, sink, known, settle=settle if arguments.outcomes else None)


async def _replay(
    arguments: argparse.Namespace, sink: Sink, known: Callable[[], Awaitable[set[str]]], settle: Settle | None
) -> int:
    disk = opened_folder(arguments.folder)
    if arguments.dry_run:
        return await _show_plan(arguments, disk, known)
    lock = disk.lock()
    try:
        outcome = Outcome(shown_url(store_url(arguments)), arguments.folder)
        outcome.recovered = await asyncio.to_thread(recover, disk)
        for one in outcome.recovered:
            text = f"was left by a crash; {plural(one.events, 'event')} recovered"
            warn(f"{one.name}: {text}{set_aside_text(one.faults)}")
        options = Options(keep=arguments.keep, retry_seconds=arguments.retry_for)
        try:
            await drain(disk, sink, outcome, options, settle)
        except (StoreGoneError, asyncio.CancelledError) as error:
            warn(f"{outcome.sentence()}; run it again, and it goes on from there")
            if isinstance(error, StoreGoneError):
                raise error.error from error
            raise
    finally:
        lock.close()
    _print_outcome(arguments, outcome)
    return 0 if outcome.is_complete else 1


def _print_outcome(arguments: argparse.Namespace, outcome: Outcome) -> None:
    if arguments.json:
        print_json(outcome.fields())
        return
    if outcome.queues:
        print_table(["queue", "messages"], sorted(outcome.queues.items()))
    warn(outcome.sentence() if outcome.meter.total else f"there was nothing to replay in {arguments.folder}")
    if (outcome.refused or outcome.damaged) and not arguments.keep:
        text = f"what is not in is in {arguments.folder}/{FAILED}"
        warn(f"{text}: *.buf is tried again next time, *.bad can't be read, *.reasons says why")


async def _show_plan(
    arguments: argparse.Namespace, disk: RealDisk, known: Callable[[], Awaitable[set[str]]]
) -> int:
    """Say what a replay would do."""
    there = await known()
    checked = await asyncio.to_thread(_check_all, disk)
    queues: Counter[str] = Counter()
    for one in checked:
        queues.update(one.found.queues if one.found else {})
    settlements = sum(one.found.settlements for one in checked if one.found)
    damaged = [one for one in checked if not one.is_sound]
    missing = sorted(set(queues) - there)
    if arguments.json:
        fields = {"messages": queues.total(), "queues": dict(queues), "missing": missing}
        counts = {"files": len(checked), "settlements": settlements, "damaged": len(damaged)}
        print_json({**fields, **counts, "dry_run": True})
    else:
        fate = "would be refused" if arguments.no_create else "would be made"
        rows = [
            (name, count, fate if name in missing else "is there") for name, count in sorted(queues.items())
        ]
        if rows:
            print_table(["queue", "messages", ""], rows)
        for one in damaged:
            for line in said_lines(one):
                warn(line)
        text = f"{plural(queues.total(), 'message')} and {plural(settlements, 'settlement')}"
        warn(f"{plural(len(checked), 'file')} with {text} would be replayed; nothing was changed")
    return 1 if damaged or (missing and arguments.no_create) else 0


def _check_all(disk: RealDisk) -> list[Checked]:
    return [found for listed in list_files(disk) if (found := check_file(disk, listed)) is not None]
