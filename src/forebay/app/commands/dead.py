"""`forebay dead`: list, redrive, purge, undo.

Invariants: what a command changed is printed in the form in which `undo` takes it back, however much it is;
nothing is changed for "all" unless `--all` says so.
"""

import argparse
import shlex
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.app.commands.arguments import count, id_range, ids_of, ranges
from forebay.app.commands.asking import agreed, declare_asking
from forebay.app.commands.opened import on_store
from forebay.app.commands.output import message_fields, print_json, print_line, print_table, time_text, warn
from forebay.app.commands.queues import declare_queue
from forebay.app.commands.taking import declare_group
from forebay.log.values import DeadLetter
from forebay.model import Corrupt, Rejected
from forebay.store.letters import Letters
from forebay.store.seam import Store

__all__ = [
    "declare_list", "declare_purge", "declare_redrive", "declare_undo",
    "list_letters", "purge", "redrive", "undo",
]  # fmt: skip

PAGE: Final = 1_000
SHOWN_MAX: Final = 20
"""Ranges of ids in a command that is printed for people."""
EXCERPT: Final = 60
FILE_BYTES_MAX: Final = 64 << 20


class _Named(msgspec.Struct):
    """What a command has printed as JSON, as far as it names letters."""

    ids: list[int | str]


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay dead list`."""
    declare_queue(parser)
    declare_group(parser)
    parser.add_argument("--reason", metavar="TEXT", help="only those whose reason contains it")
    parser.add_argument("--after", metavar="ID", type=int, default=0, help="go on after this id")
    parser.add_argument(
        "--limit", metavar="N", type=count, default=100, help="letters at most (default: %(default)s)"
    )


def declare_redrive(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay dead redrive`."""
    _declare_choice(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")


def declare_purge(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay dead purge`."""
    _declare_choice(parser)
    declare_asking(parser)


def declare_undo(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay dead undo`."""
    declare_queue(parser)
    declare_group(parser)
    _declare_ids(parser)


def _declare_choice(parser: argparse.ArgumentParser) -> None:
    declare_queue(parser)
    declare_group(parser)
    _declare_ids(parser)
    parser.add_argument("--reason", metavar="TEXT", help="only those whose reason contains it")
    parser.add_argument("--all", action="store_true", help="all of the group")


def _declare_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", type=id_range, nargs="*", help="an id, or FIRST-LAST")
    parser.add_argument(
        "--ids", metavar="FILE", help="a file of ids, one or FIRST-LAST a line, or what --json has printed"
    )


@on_store
async def list_letters(store: Store, arguments: argparse.Namespace) -> int:
    """Print dead letters, oldest id first."""
    found = await _letters(store, arguments)
    if arguments.json:
        print_json([_fields(letter) for letter in found])
        return 0
    rows = [
        (str(letter.message_id), time_text(letter.died_at), letter.attempts, letter.reason, _excerpt(letter))
        for letter in found
    ]
    print_table(["id", "died", "attempts", "reason", "payload"], rows)
    if len(found) == arguments.limit:
        warn(f"there may be more: add --after {found[-1].message_id}")
    return 0


async def _letters(store: Store, arguments: argparse.Namespace) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    after: int = max(0, arguments.after)
    while len(found) < arguments.limit:
        limit = PAGE if arguments.reason else min(PAGE, arguments.limit - len(found))
        page = await store.dead_letters(arguments.queue, group=arguments.group, after=after, limit=limit)
        found += [letter for letter in page if not arguments.reason or arguments.reason in letter.reason]
        if len(page) < limit:
            break
        after = page[-1].message_id
    return found[: arguments.limit]


def _fields(letter: DeadLetter) -> dict[str, Any]:
    names = ("died_at", "reason", "attempts")
    fields = {"id": str(letter.message_id), **{name: getattr(letter, name) for name in names}}
    try:
        return {**fields, **message_fields(letter.message())}
    except Corrupt as error:
        return {**fields, "corrupt": str(error)}


def _excerpt(letter: DeadLetter) -> str:
    fields = _fields(letter)
    text = str(fields.get("payload", "(can't be read)"))
    mark = "base64:" if "encoding" in fields else ""
    return mark + (text if len(text) <= EXCERPT else text[:EXCERPT] + "...")


@on_store
async def redrive(store: Store, arguments: argparse.Namespace) -> int:
    """Hand dead letters out again."""
    ids = _chosen(arguments)
    letters = await store.redrive(
        arguments.queue, ids, group=arguments.group, reason=arguments.reason, dry_run=arguments.dry_run
    )
    _report(arguments, letters, "redriven")
    return 0


@on_store
async def purge(store: Store, arguments: argparse.Namespace) -> int:
    """Do away with dead letters."""
    ids, reason, group = _chosen(arguments), arguments.reason, arguments.group
    if not arguments.dry_run and not arguments.yes:
        found = await store.purge(arguments.queue, ids, group=group, reason=reason, dry_run=True)
        if not agreed(arguments, f"purge {len(found):,} dead letters of queue {arguments.queue}"):
            return 1
    letters = await store.purge(arguments.queue, ids, group=group, reason=reason, dry_run=arguments.dry_run)
    _report(arguments, letters, "purged")
    return 0


@on_store
async def undo(store: Store, arguments: argparse.Namespace) -> int:
    """Undo a redrive or a purge; exit status 1 when not all of it could be."""
    ids = _named(arguments)
    if ids is None:
        raise Rejected("no dead letters are named", hint="give their ids, or --ids FILE")
    letters = await store.undo(arguments.queue, Letters(ids), group=arguments.group)
    left = len(ids) - len(letters)
    if arguments.json:
        print_json({"ids": list(map(str, letters.ids)), "left": left})
    else:
        for line in ranges(letters.ids):
            print_line(line)
        warn(f"{len(letters):,} are dead letters again" + (f"; {left:,} stay as they are" if left else ""))
    return 1 if left else 0


def _chosen(arguments: argparse.Namespace) -> list[int] | None:
    """The ids that are meant; None for all."""
    ids = _named(arguments)
    if ids is not None and arguments.all:
        raise Rejected("both ids and --all are given", hint="give one of them")
    if ids is None and not arguments.all and not arguments.reason:
        raise Rejected("it isn't said which dead letters", hint="give ids, --reason TEXT or --all")
    return ids


def _named(arguments: argparse.Namespace) -> list[int] | None:
    if arguments.ids is None:
        return ids_of(arguments.id) if arguments.id else None
    return ids_of([*arguments.id, *_read_ids(Path(arguments.ids))])


def _read_ids(path: Path) -> list[range]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise Rejected(f"{path} is larger than a file of ids can be", hint="split it")
        if data.lstrip().startswith(b"{"):
            return [id_range(str(id)) for id in msgspec.json.decode(data, type=_Named).ids]
        return [id_range(line.strip()) for line in data.decode().splitlines() if line.strip()]
    except OSError as error:
        raise Rejected(f"{path} can't be read: {error.strerror}", hint="check the path") from error
    except (UnicodeDecodeError, msgspec.DecodeError, argparse.ArgumentTypeError) as error:
        raise Rejected(f"{path}: {error}", hint="give one id, or FIRST-LAST, a line") from error


def _report(arguments: argparse.Namespace, letters: Letters, verb: str) -> None:
    """Print which letters were changed, and what takes it back."""
    parts = ranges(letters.ids)
    base = ["forebay", "dead", "undo", arguments.queue, "--group", arguments.group]
    undoing = shlex.join([*base, *parts] if len(parts) <= SHOWN_MAX else [*base, "--ids", "FILE"])
    if arguments.json:
        print_json({"ids": list(map(str, letters.ids)), "dry_run": letters.dry_run, "undo": undoing})
        return
    for line in parts:
        print_line(line)
    noun = "dead letter" if len(letters) == 1 else "dead letters"
    if letters.dry_run:
        warn(f"{len(letters):,} {noun} would be {verb}; nothing was changed")
    elif not letters.ids:
        warn(f"no dead letter was {verb}")
    else:
        file = "" if len(parts) <= SHOWN_MAX else " (FILE holds the lines above)"
        warn(f"{len(letters):,} {noun} {verb}; to undo it{file}: {undoing}")
