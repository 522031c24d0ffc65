"""`forebay spool replay --spark`: the spool folders of many dead servers at once.

What goes in, in which order, and why nothing goes in twice, is in `forebay.spark.replay`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.api.queen.spooled import creation_by
from forebay.app.commands.archive import log_address, session_of
from forebay.app.commands.meter import Meter, shown
from forebay.app.commands.opened import shown_url, store_url
from forebay.app.commands.output import print_json, print_table, warn
from forebay.app.commands.spool import SHOWN_MAX, check_file, opened_folder, plural
from forebay.app.opening import open_log
from forebay.model import Misconfigured, Rejected
from forebay.spool.checking import list_files

if TYPE_CHECKING:
    from forebay.spark.replay.replaying import BulkReplay

__all__ = ["declare_bulk", "replay_bulk"]


def declare_bulk(parser: argparse.ArgumentParser) -> None:
    """The arguments that are for `--spark` only."""
    parser.add_argument(
        "--spark", action="store_true", help="many folders at once, on Spark; files stay where they are"
    )
    parser.add_argument("--master", metavar="URL", help="with --spark: a cluster that sees the same folders")
    parser.add_argument(
        "--aside", metavar="DIR", help="with --spark: the folder for lines that can't be replayed"
    )
    parser.add_argument(
        "--remove", action="store_true", help="with --spark: remove files of which everything is in, or aside"
    )


def replay_bulk(arguments: argparse.Namespace) -> int:
    """Replay folders; exit status 1 when some of them is not in the store."""
    for folder in arguments.folder:
        opened_folder(folder)  # before anybody is asked for anything
    _check(arguments)
    if arguments.dry_run:
        return _show_plan(arguments)
    try:
        from forebay.spark.logs import close_all  # noqa: PLC0415 - only with the spark extra
        from forebay.spark.replay import replaying as spark_replay  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise Misconfigured("--spark needs Spark", hint="pip install 'forebay[spark]'") from error
    url, credentials = log_address(arguments)
    wishes = spark_replay.Wishes(
        create_queues=not arguments.no_create, aside=_aside(arguments), remove=arguments.remove,
        retry_seconds=arguments.retry_for,
    )  # fmt: skip
    tools = spark_replay.Tools(open_log, url, creation_by, credentials)
    bulk = spark_replay.BulkReplay(session_of(arguments)(), tools, wishes)
    complete = False
    try:
        bulk.prepare(arguments.folder)
        meter = Meter("replay", bulk.size, "bytes")
        with shown(meter):
            bulk.run(meter.add)
        complete = True
    finally:
        bulk.finish(complete=complete)
        _print(arguments, bulk)
        close_all()
    return 0 if bulk.summary.is_complete else 1


def _check(arguments: argparse.Namespace) -> None:
    if arguments.outcomes:
        text = "--outcomes is for one folder, and the log that its server worked on"
        raise Rejected(text, hint="replay it without --spark")
    if arguments.keep and arguments.remove:
        raise Rejected("--keep and --remove say opposite things", hint="leave one of them out")
    if arguments.remove and arguments.aside is None:
        text = "--remove would remove lines that can't be replayed, too"
        raise Rejected(text, hint="say with --aside where they go")


def _aside(arguments: argparse.Namespace) -> str | None:
    return None if arguments.aside is None else str(Path(arguments.aside).resolve())


def _print(arguments: argparse.Namespace, bulk: BulkReplay) -> None:
    done = bulk.summary
    if arguments.json:
        print_json(done)
        return
    if done.written:
        print_table(["queue", "messages"], sorted(done.written.items()))
    rate = done.messages / max(done.seconds, 1e-6)
    parts = [f"{plural(done.messages, 'message')} of {plural(done.files, 'file')} went into"]
    parts.append(f"{shown_url(store_url(arguments))} ({rate:,.0f}/s)")
    warn(" ".join(parts))
    said = (
        (done.files_known, "files had been replayed before, as they are"),
        (done.known, "messages were in already: their blocks are known"),
        (done.repeated, "messages repeat the transaction id of another, and were left out"),
        (done.refused, "messages were refused"),
        (done.damaged, "pieces are damaged"),
        (done.removed, "files were removed"),
    )
    for count, text in said:
        if count:
            warn(f"{count:,} {text}")
    if (done.refused or done.damaged) and arguments.aside:
        warn(f"what is not in is in {arguments.aside}: a file of NDJSON for each, with place and reason")
    for path, reason in list(done.left.items())[:SHOWN_MAX]:
        warn(f"{path} stays where it is: {reason}")


def _show_plan(arguments: argparse.Namespace) -> int:
    """Say what a replay would do, without Spark."""
    queues: Counter[str] = Counter()
    files = damaged = 0
    for folder in _each(arguments.folder):
        disk = opened_folder(folder)
        for listed in list_files(disk):
            found = check_file(disk, listed)
            if found is not None and listed.name.prefix != "settle":
                files += 1
                damaged += not found.is_sound
                queues.update(found.found.queues if found.found else {})
    if arguments.json:
        fields = {"files": files, "messages": queues.total(), "queues": dict(queues), "damaged": damaged}
        print_json({**fields, "dry_run": True})
    else:
        print_table(["queue", "messages"], sorted(queues.items()))
        text = f"{plural(files, 'file')} with {plural(queues.total(), 'message')} would be replayed"
        warn(f"{text}, {damaged:,} of them damaged; nothing was changed")
    return 1 if damaged else 0


def _each(folders: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(str(Path(folder).resolve()) for folder in folders))
