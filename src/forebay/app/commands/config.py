"""`forebay config show` and `forebay config check`."""

import argparse

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.app.commands.output import print_json
from forebay.app.configuring import (
    Fault,
    Loaded,
    declare_settings,
    file_faults,
    load_from,
    misconfigured,
    read_from,
)

__all__ = ["check", "declare_check", "declare_show", "show"]

_WIDE = 500


def declare_show(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay config show`: those of the server."""
    declare_settings(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_check(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay config check`."""
    parser.add_argument(
        "config", metavar="FILE", nargs="?", help="the configuration file (default: $FOREBAY_CONFIG)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def show(arguments: argparse.Namespace) -> int:
    """Print every setting that a server with these arguments would have."""
    loaded = load_from(arguments)
    if arguments.json:
        rows = [{"key": row.key, "value": row.value, "source": row.source} for row in loaded.rows()]
        print_json(rows)
    else:
        _wide_console().print(_table(loaded))
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Say whether a server would start with the file and this environment; if not, all that is wrong."""
    reading = read_from(arguments)
    faults: list[Fault] = reading.faults if reading.loaded is None else file_faults(reading.loaded)
    if arguments.json:
        print_json({"faults": faults})
        return 3 if faults else 0
    if faults:
        raise misconfigured(faults)
    Console(stderr=True).print("the settings are right", highlight=False)
    return 0


def _table(loaded: Loaded) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for row in loaded.rows():
        style = "dim" if row.source == "default" else "bold"
        table.add_row(row.key, Text(row.text), Text(row.source), style=style)
    return table


def _wide_console() -> Console:
    """A console that folds nothing when it isn't a terminal: what reads it looks for whole values."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
