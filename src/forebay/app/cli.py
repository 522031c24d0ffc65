"""The command line: parses arguments, runs one command, maps its result to an exit status.

A command is a `Command`: a name, one line of help, and either a function that runs it with one that
declares its arguments, or verbs, which are commands themselves (`forebay keys create`). `COMMANDS` is
the whole list; nothing is found by import side effects.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from forebay import __version__
from forebay.app import commands, config_verbs, key_verbs, serving
from forebay.model import ForebayError

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name

__all__ = ["COMMANDS", "Command", "build_parser", "main"]


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command takes no arguments."""


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand. `run` gets the parsed arguments and returns the exit status.

    A noun has `verbs` in place of `run`: one of them must be said.
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
        "config",
        "settings of the server",
        verbs=(
            Command(
                "show",
                "print the settings in effect, and where each comes from",
                config_verbs.show,
                config_verbs.declare_show,
            ),
            Command(
                "check",
                "say everything that is wrong with the settings",
                config_verbs.check,
                config_verbs.declare_check,
            ),
        ),
    ),
    Command(
        "demo",
        "put, take and finish tasks, and print the ledger",
        commands.demo,
        commands.declare_demo,
    ),
    Command(
        "keys",
        "API keys of the server",
        verbs=(
            Command("create", "make a key, and print it once", key_verbs.create, key_verbs.declare_create),
            Command("list", "print all keys, without their secrets", key_verbs.show, key_verbs.declare_list),
            Command(
                "revoke", "make a key invalid within a second", key_verbs.revoke, key_verbs.declare_revoke
            ),
        ),
    ),
    Command("ledger", "print where all messages are", commands.ledger, commands.declare_store),
    Command(
        "upkeep",
        "one round of upkeep: sweep the SQL inbox, drop what is past retention",
        commands.upkeep,
        commands.declare_store,
    ),
    Command(
        "serve",
        "serve the queues over HTTP until a signal",
        serving.serve,
        serving.declare_serve,
    ),
    Command("version", "print the version and exit", _version),
)


def build_parser(known: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with one subparser per command."""
    parser = argparse.ArgumentParser(
        prog="forebay", description="Forebay: a durable queue for data pipelines."
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="command", dest="command")
    _add_commands(subparsers, known)
    return parser


def _add_commands(subparsers: Subparsers, known: Sequence[Command]) -> None:
    for command in known:
        parser = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        command.declare(parser)
        if command.verbs:
            verbs = parser.add_subparsers(
                title="verbs", metavar="verb", dest="verb", required=command.run is None
            )
            _add_commands(verbs, command.verbs)
        if command.run is not None:
            parser.set_defaults(run=command.run)


def main(argv: Sequence[str] | None = None, known: Sequence[Command] = COMMANDS) -> int:
    """Run one command and return its exit status.

    0 is success, 1 a finding (the ledger doesn't balance), 2 a usage error, 3 an error that Forebay
    explains on standard error, 130 an interruption.
    """
    parser = build_parser(known)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
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
