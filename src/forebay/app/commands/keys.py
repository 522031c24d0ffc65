"""`forebay keys create`, `list` and `revoke`: they work on the file, so no server need run."""

import argparse
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.api import keyfile
from forebay.api.keys import SCOPES, Key, make_key
from forebay.app.commands.output import print_json
from forebay.app.configuring import declare_settings, load_from
from forebay.model import Misconfigured, Rejected, SystemClock, parse_seconds, to_datetime

__all__ = ["create", "declare_create", "declare_list", "declare_revoke", "revoke", "show"]

USUAL_SCOPES: Final = ("read", "push", "take")
"""What a key may do when nothing is said: all that programs need, and nothing that deletes."""


def _declare(parser: argparse.ArgumentParser) -> None:
    declare_settings(parser, only=("--data", "--keys"))
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_create(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay keys create`."""
    parser.add_argument("--name", metavar="NAME", required=True, help="whose it is, or what it is for")
    parser.add_argument(
        "--scope",
        metavar="SCOPE",
        dest="scopes",
        action="append",
        help=f"what it may do: {', '.join(SCOPES)}; may be repeated (without: {', '.join(USUAL_SCOPES)})",
    )
    parser.add_argument(
        "--queue",
        metavar="PREFIX",
        dest="queues",
        action="append",
        default=[],
        help="only for queues whose name begins so; may be repeated",
    )
    parser.add_argument("--rate", metavar="N", type=float, help="requests per second, on average")
    parser.add_argument("--burst", metavar="N", type=int, help="requests at once (with --rate)")
    parser.add_argument("--expires", metavar="DURATION", help="how long it is valid, like 30d")
    _declare(parser)


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay keys list`."""
    _declare(parser)


def declare_revoke(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay keys revoke`."""
    parser.add_argument("id", metavar="ID", help="the id of the key, as `forebay keys list` prints it")
    _declare(parser)


def create(arguments: argparse.Namespace) -> int:
    """Make a key, add it to the file and print it."""
    path = load_from(arguments).settings.keys_file
    if arguments.burst is not None and arguments.rate is None:
        raise Rejected("--burst is given without --rate", hint="give both, or --rate alone")
    now = SystemClock().now()
    key, text = make_key(
        arguments.name,
        arguments.scopes or USUAL_SCOPES,
        now=now,
        queues=arguments.queues,
        expires_at=None if arguments.expires is None else now + _microseconds(arguments.expires),
        rate_per_second=arguments.rate,
        burst=arguments.burst,
    )
    keyfile.change_keys(path, lambda keys: keyfile.with_key(keys, key, now))
    if arguments.json:
        print_json({"key": text, **_public(key, now)})
    else:
        print(text)  # noqa: T201 - the command's data
        note = f"key {key.id} is in {path}; it is shown this once, so keep it now"
        Console(stderr=True, soft_wrap=True).print(note, highlight=False, markup=False)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print all keys of the file."""
    path = load_from(arguments).settings.keys_file
    found = keyfile.read_keys(path)
    keys, now = found[0] if found else [], SystemClock().now()
    if arguments.json:
        print_json([_public(key, now) for key in keys])
    else:
        Console().print(_table(keys, now))
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """Make a key invalid; revoking it again changes nothing."""
    path = load_from(arguments).settings.keys_file
    if not path.exists():
        raise Misconfigured(f"there is no file of keys at {path}", hint="name it with --keys or --data")
    id, now = arguments.id, SystemClock().now()
    keyfile.change_keys(path, lambda keys: keyfile.revoke(keys, id, now))
    if arguments.json:
        print_json({"id": id, "state": "revoked"})
    else:
        note = f"key {id} is revoked; servers refuse it within a second"
        Console(stderr=True, soft_wrap=True).print(note, highlight=False, markup=False)
    return 0


def _microseconds(duration: str) -> int:
    try:
        return round(parse_seconds(duration) * 1_000_000)
    except Rejected as error:
        raise Rejected(f"--expires: {error.message}", hint=error.hint) from None


def _public(key: Key, now: int) -> dict[str, Any]:
    """What may be shown of a key: all but its digest."""
    shown = {name: getattr(key, name) for name in Key.__struct_fields__ if name != "digest"}
    return {**shown, "state": key.reason_against(now) or "valid"}


def _table(keys: list[Key], now: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for column in ("id", "name", "state", "scopes", "queues", "rate", "created", "expires"):
        table.add_column(column, overflow="fold")
    for key in keys:
        state = key.reason_against(now) or "valid"
        cells = [
            key.id,
            key.name,
            state,
            " ".join(key.scopes),
            " ".join(f"{prefix}*" for prefix in key.queues) or "all",
            "" if key.rate_per_second is None else f"{key.rate_per_second:g}/s",
            _day(key.created_at),
            "never" if key.expires_at is None else _day(key.expires_at),
        ]
        table.add_row(*map(Text, cells), style="" if state == "valid" else "dim")
    return table


def _day(moment: int) -> str:
    return to_datetime(moment).strftime("%Y-%m-%d")
