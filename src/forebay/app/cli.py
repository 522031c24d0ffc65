"""The command line: parses arguments, runs one command, maps its result to an exit status.

A command is a `Command`: a name, one line of help, a function that declares its arguments, and a
function that runs it. `COMMANDS` is the whole list; nothing is found by import side effects.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forebay import __version__

__all__ = ["COMMANDS", "Command", "build_parser", "main"]


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command takes no arguments."""


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand. `run` gets the parsed arguments and returns the exit status."""

    name: str
    summary: str
    run: Callable[[argparse.Namespace], int]
    declare: Callable[[argparse.ArgumentParser], None] = _no_arguments


def _version(_: argparse.Namespace) -> int:
    print(__version__)
    return 0


COMMANDS: tuple[Command, ...] = (
    Command(name="version", summary="print the version and exit", run=_version),
)


def build_parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with one subparser per command."""
    parser = argparse.ArgumentParser(
        prog="forebay", description="Forebay: a durable queue for data pipelines."
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="command", dest="command")
    for command in commands:
        subparser = subparsers.add_parser(
            command.name, help=command.summary, description=command.summary
        )
        command.declare(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command and return its exit status (2 for a usage error, 130 when interrupted)."""
    parser = build_parser(commands)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except KeyboardInterrupt:
        return 130
