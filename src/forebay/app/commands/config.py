"""`forebay config show` and `forebay config check`."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.app.commands.output import print_json
from forebay.app.configuring import (
    Fault,
    declare_settings,
    file_faults,
    load_from,
    misconfigured,
    read_from,
)
from forebay.app.configuring.flags import FLAGS
from forebay.app.configuring.reading import DEFAULT, Row
from forebay.app.relay_settings import read_relay, relay_rows
from forebay.model import Misconfigured, Rejected
from forebay.relay.tls import certificate_of
from forebay.relay.tokens import read_tokens

__all__ = ["check", "declare_check", "declare_show", "show"]

_WIDE = 500


def declare_show(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay config show`: those of the server."""
    declare_settings(parser)
    _declare_relay(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_check(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay config check`."""
    parser.add_argument(
        "config", metavar="FILE", nargs="?", help="the configuration file (default: $FOREBAY_CONFIG)"
    )
    _declare_relay(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _declare_relay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--relay", action="store_true", help="of `forebay relay`, not of a server")


def show(arguments: argparse.Namespace) -> int:
    """Print every setting that a server with these arguments, or a relay, would have."""
    rows = _relay_rows(arguments) if arguments.relay else load_from(arguments).rows()
    if arguments.json:
        print_json([{"key": row.key, "value": row.value, "source": row.source} for row in rows])
    else:
        _wide_console().print(_table(rows))
    return 0


def _relay_rows(arguments: argparse.Namespace) -> list[Row]:
    given = [flag.name for flag in FLAGS if getattr(arguments, flag.attribute) is not None]
    if given:
        text = f"{given[0]} is a flag of a server here"
        raise Rejected(text, hint="for a relay, give --config FILE and variables")
    config, origins, faults = read_relay(arguments)
    if config is None:
        raise misconfigured(faults)
    return relay_rows(config, origins)


def check(arguments: argparse.Namespace) -> int:
    """Say whether a server would start with the file and this environment; if not, all that is wrong."""
    faults = _relay_faults(arguments) if arguments.relay else _server_faults(arguments)
    if arguments.json:
        print_json({"faults": faults})
        return 3 if faults else 0
    if faults:
        raise misconfigured(faults)
    Console(stderr=True).print("the settings are right", highlight=False)
    return 0


def _server_faults(arguments: argparse.Namespace) -> list[Fault]:
    reading = read_from(arguments)
    return reading.faults if reading.loaded is None else file_faults(reading.loaded)


def _relay_faults(arguments: argparse.Namespace) -> list[Fault]:
    config, origins, faults = read_relay(arguments)
    if config is None:
        return faults
    checks: tuple[Callable[[], object], ...] = (
        lambda: certificate_of(config.relay),
        lambda: config.relay.token_file and read_tokens(Path(config.relay.token_file)),
    )
    found = []
    for check_file in checks:
        try:
            check_file()
        except Misconfigured as error:
            path = f"relay.{error.key}"
            source = origins.get(path, DEFAULT)
            found.append(Fault(key=path, source=source, message=error.message, hint=error.hint))
    return found


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        style = "dim" if row.source == "default" else "bold"
        table.add_row(row.key, Text(row.text), Text(row.source), style=style)
    return table


def _wide_console() -> Console:
    """A console that folds nothing when it isn't a terminal: what reads it looks for whole values."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
