"""The command line: parses arguments, runs one command, maps its result to an exit status.

A command is a `Command`: a name, one line of help, a function that declares its arguments, and a
function that runs it, or verbs, which are commands again. `COMMANDS` is the whole list; nothing is found by
import side effects.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forebay import __version__
from forebay.app import commands
from forebay.model import ForebayError

__all__ = ["COMMANDS", "Command", "build_parser", "main"]


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command takes no arguments."""


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand. `run` gets the parsed arguments and returns the exit status.

    A noun has `verbs` in place of `run`; without a verb it prints its help.
    """

    name: str
    summary: str
    run: Callable[[argparse.Namespace], int] | None = None
    declare: Callable[[argparse.ArgumentParser], None] = _no_arguments
    verbs: tuple["Command", ...] = ()


def _version(_: argparse.Namespace) -> int:
    print(__version__)
    return 0


COMMANDS: tuple[Command, ...] = (
    Command(
        "demo",
        "put, take and finish tasks, and print the ledger",
        commands.demo,
        commands.declare_demo,
    ),
    Command("ledger", "print where all messages are", commands.ledger, commands.declare_store),
    Command(
        "upkeep",
        "one round of upkeep: sweep the SQL inbox, drop what is past retention",
        commands.upkeep,
        commands.declare_store,
    ),
    Command("version", "print the version and exit", _version),
)


def build_parser(known: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with one subparser per command."""
    parser = argparse.ArgumentParser(
        prog="forebay", description="Forebay: a durable queue for data pipelines."
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    parser.set_defaults(run=_printing_help(parser))
    _add_commands(parser, known, "command")
    return parser


def _add_commands(parser: argparse.ArgumentParser, known: Sequence[Command], word: str) -> None:
    subparsers = parser.add_subparsers(title=f"{word}s", metavar=word)
    for command in known:
        subparser = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        command.declare(subparser)
        subparser.set_defaults(run=command.run or _printing_help(subparser))
        if command.verbs:
            _add_commands(subparser, command.verbs, "verb")


def _printing_help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    return run


def main(argv: Sequence[str] | None = None, known: Sequence[Command] = COMMANDS) -> int:
    """Run one command and return its exit status.

    0 is success, 1 a finding (the ledger doesn't balance), 2 a usage error, 3 an error that Forebay
    explains on standard error, 130 an interruption.
    """
    arguments = build_parser(known).parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except ForebayError as error:
        print(f"forebay: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
