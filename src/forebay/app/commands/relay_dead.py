"""`forebay relay dead`: the requests that a relay gave up; `redrive` sends them again, `purge` drops them.

The lock on a destination's folder decides who does it: this process where the relay is stopped, otherwise
the relay, which is asked over the socket in the folder.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from forebay.app.commands.arguments import count
from forebay.app.commands.asking import agreed, declare_asking
from forebay.app.commands.meter import Meter, shown
from forebay.app.commands.output import print_json, print_line, print_table, warn
from forebay.app.configuring.faults import excerpt
from forebay.app.relay_settings import load_relay
from forebay.deliver.dead_letters import KeptLetter, LetterChoice
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.redrive import LetterJob, LetterStep, Verb
from forebay.disk import RealDisk
from forebay.model import ForebayError, Rejected, SystemClock, to_datetime

__all__ = ["declare_dead", "declare_purge", "declare_redrive", "list_dead", "purge", "redrive"]

_SHOWN_MAX: Final = 20
"""Ids that people are shown one by one."""


def declare_dead(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay dead`."""
    parser.add_argument("--data", metavar="FOLDER", default="./queue", help="of the relay (default: ./queue)")
    parser.add_argument(
        "--limit", metavar="N", type=count, default=100, help="of each destination (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_redrive(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay dead redrive`."""
    _declare_choice(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")


def declare_purge(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay dead purge`."""
    _declare_choice(parser)
    declare_asking(parser)


def _declare_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="*", help="an id, as `forebay relay dead` prints it")
    parser.add_argument("--reason", metavar="TEXT", default="", help="only those whose reason contains it")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--destination", metavar="NAME", help="only those of this one, as it is listed")
    parser.add_argument("--config", metavar="FILE", help="the relay's file, for the limits of its queues")
    # Without a default: one that is given before the verb would be overwritten.
    parser.add_argument(
        "--data", metavar="FOLDER", default=argparse.SUPPRESS, help="of the relay (default: ./queue)"
    )
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def list_dead(arguments: argparse.Namespace) -> int:
    """Print the requests that a relay gave up, and why; it may be running."""
    from forebay.deliver.storage import read_dead_letters  # noqa: PLC0415 - other commands don't need it

    rows = [
        _row(name, letter)
        for name, letters in read_dead_letters(_folder(arguments))
        for letter in islice(letters, arguments.limit)
    ]
    if arguments.json:
        print_json(rows)
        return 0
    columns = ("destination", "id", "buried_at", "attempts", "status", "request", "reason")
    print_table(columns, [[str(row[column]) for column in columns] for row in rows])
    return 0


def _folder(arguments: argparse.Namespace) -> Path:
    folder = Path(arguments.data)
    if not folder.is_dir():
        raise Rejected(f"there is no folder {folder}", hint="name that of the relay with --data")
    return folder


def _row(destination: str, kept: KeptLetter) -> dict[str, object]:
    from forebay.deliver.entry_data import decode_request  # noqa: PLC0415 - likewise

    letter = kept.letter
    try:
        request = decode_request(letter.data)
        shown = (
            f"{request.method.decode()} {request.target.decode('ascii', 'replace')} {len(request.body)} bytes"
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        shown = f"{len(letter.data)} bytes that aren't a request"
    return {
        "destination": destination,
        "id": kept.id,
        "buried_at": to_datetime(letter.buried_at_us).isoformat(),
        "enqueued_at": to_datetime(letter.enqueued_at_us).isoformat(),
        "attempts": letter.attempts,
        "error_class": letter.error_class,
        "status": letter.status,
        "request": shown,
        "reason": letter.reason,
        "answer": letter.answer.decode("utf-8", "replace"),
    }


def redrive(arguments: argparse.Namespace) -> int:
    """Send dead letters again, under the ids that they had."""
    job = LetterJob(verb="redrive", choice=_choice(arguments), dry_run=arguments.dry_run)
    return _report(arguments, job, asyncio.run(_Jobs(arguments).run(job)))


def purge(arguments: argparse.Namespace) -> int:
    """Do away with dead letters."""
    job = LetterJob(verb="purge", choice=_choice(arguments), dry_run=arguments.dry_run)
    jobs = _Jobs(arguments)
    if not arguments.dry_run and not arguments.yes:
        found = asyncio.run(jobs.run(msgspec.structs.replace(job, dry_run=True)))
        if not agreed(arguments, f"purge {sum(map(len, found.ids.values())):,} dead letters"):
            return 1
    return _report(arguments, job, asyncio.run(jobs.run(job)))


def _choice(arguments: argparse.Namespace) -> LetterChoice:
    if arguments.id and arguments.all:
        raise Rejected("both ids and --all are given", hint="give one of them")
    if not arguments.id and not arguments.all and not arguments.reason:
        raise Rejected("it isn't said which dead letters", hint="give ids, --reason TEXT or --all")
    return LetterChoice(ids=frozenset(arguments.id) if arguments.id else None, reason=arguments.reason)


class _Found(msgspec.Struct):
    """The outcome of a job, destination by destination."""

    ids: dict[str, list[str]] = {}
    problems: dict[str, str] = {}


class _Jobs:
    """Does jobs in the folders of destinations."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        path = _folder(arguments)
        given = argparse.Namespace(config=arguments.config, relay_flag_data=str(path))
        self._settings = load_relay(given).exporter.queue.resolve()
        self._folders = _destinations(path, arguments.destination)

    async def run(self, job: LetterJob) -> _Found:
        """Do a job for each destination; one that fails doesn't keep it from the others."""
        found = _Found()
        for folder in self._folders:
            ids = found.ids.setdefault(folder.name, [])
            meter = Meter(f"{job.verb} {folder.name}", 0, "dead letters")
            try:
                with shown(meter):
                    async with aclosing(_steps(folder, self._settings, job)) as steps:
                        async for step in steps:
                            ids += step.ids
                            meter.total = step.total
                            meter.add(step.looked)
            except ForebayError as error:
                found.problems[folder.name] = str(error)
        return found


def _destinations(path: Path, name: str | None) -> list[Path]:
    from forebay.deliver.storage import DEAD  # noqa: PLC0415 - likewise

    found = sorted(folder.parent for folder in path.glob(f"*/{DEAD}") if folder.is_dir())
    if name is None:
        return found
    chosen = [folder for folder in found if folder.name == name]
    if not chosen:
        known = ", ".join(folder.name for folder in found) or "there are none"
        raise Rejected(f"{path} has no destination {name!r}", hint=f"known: {known}")
    return chosen


async def _steps(
    folder: Path, settings: SendQueueSettings, job: LetterJob
) -> AsyncGenerator[LetterStep, None]:
    from forebay.deliver.control import ask_control  # noqa: PLC0415 - likewise
    from forebay.deliver.redrive import run_job  # noqa: PLC0415 - likewise
    from forebay.deliver.storage import open_send_queue  # noqa: PLC0415 - likewise

    if RealDisk(folder).is_locked():
        async with aclosing(ask_control(folder, job)) as asked:
            async for step in asked:
                yield step
        return
    queue = await open_send_queue(folder, settings, clock=SystemClock().now)
    try:
        async with aclosing(run_job(queue, job)) as steps:
            async for step in steps:
                yield step
    finally:
        await queue.close()


_MISSING_SHOWN_MAX: Final = 10
_DONE: Final[dict[Verb, str]] = {"redrive": "redriven", "purge": "purged"}


def _report(arguments: argparse.Namespace, job: LetterJob, found: _Found) -> int:
    if arguments.json:
        print_json({"ids": found.ids, "problems": found.problems, "dry_run": job.dry_run})
    else:
        for name, ids in found.ids.items():
            for id in ids[:_SHOWN_MAX]:
                print_line(f"{name} {id}")
            if len(ids) > _SHOWN_MAX:
                print_line(f"{name} and {len(ids) - _SHOWN_MAX:,} more: see `--json`")
        total = sum(map(len, found.ids.values()))
        noun = "dead letter" if total == 1 else "dead letters"
        done = _DONE[job.verb]
        warn(
            f"{total:,} {noun} would be {done}; nothing was changed"
            if job.dry_run
            else f"{total:,} {noun} {done}"
        )
    for name, problem in found.problems.items():
        warn(f"{name}: {problem}")
    missing = sorted((job.choice.ids or frozenset()).difference(*found.ids.values()))
    if missing and not found.problems:
        named = ", ".join(map(excerpt, missing[:_MISSING_SHOWN_MAX]))
        warn(f"there is no dead letter {named}; see `forebay relay dead`")
    return 1 if found.problems or missing else 0
