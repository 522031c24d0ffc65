"""The command line: parses arguments, runs one command, maps its result to an exit status.

A command is a `Command`: a name, one line of help, a function that declares its arguments, and a
function that runs it, or verbs, which are commands again. `COMMANDS` is the whole list; nothing is found by
import side effects.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from forebay import __version__
from forebay.app.commands import (
    archive,
    books,
    completion,
    config,
    contract,
    dead,
    destinations,
    doctor,
    fastqueue,
    groups,
    inbox,
    keys,
    looking,
    pipeline,
    pushing,
    queues,
    relay,
    relay_dead,
    relay_status,
    replaying,
    snapshot,
    spool,
    spool_status,
    tailing,
    taking,
    top,
)
from forebay.app.commands.arguments import address, weight
from forebay.app.commands.opened import declare_embedded, declare_store
from forebay.app.configuring import declare_settings
from forebay.app.configuring.faults import nearest
from forebay.app.configuring.flags import OF_SERVER
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


def _serve(arguments: argparse.Namespace) -> int:
    from forebay.app.commands.serving import serve  # noqa: PLC0415 - a server takes as long to load as the rest

    return serve(arguments)


def _declare_server(parser: argparse.ArgumentParser) -> None:
    declare_settings(parser, only=OF_SERVER)


def _up(arguments: argparse.Namespace) -> int:
    from forebay.app.commands.up import up  # noqa: PLC0415 - likewise

    return up(arguments)


def _declare_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=address, help="serve /metrics and /healthz there"
    )


def _declare_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("worker", metavar="MODULE:NAME", help="where the worker is: app.module:worker")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the server or the log (default: the worker's own, else $FOREBAY_STORE)",
    )
    parser.add_argument("--key", metavar="KEY", help="the server's API key (default: $FOREBAY_KEY)")
    parser.add_argument(
        "--config", metavar="FILE", help="settings of its queues, read again when they change"
    )
    parser.add_argument(
        "--service",
        metavar="NAME",
        default="forebay",
        help="the first part of their paths (default: forebay)",
    )
    _declare_metrics(parser)
    parser.add_argument(
        "--log-format", choices=("auto", "json", "people"), default="auto", help="of the logs"
    )
    levels = ("debug", "info", "warning", "error")
    parser.add_argument(
        "--log-level", choices=levels, default="info", help="the least serious that is written"
    )


def _work(arguments: argparse.Namespace) -> int:
    from forebay.app.commands.working import work  # noqa: PLC0415 - likewise

    return work(arguments)


def _deliver(arguments: argparse.Namespace) -> int:
    from forebay.app.commands.deliver import deliver  # noqa: PLC0415 - likewise

    return deliver(arguments)


def _declare_deliver(parser: argparse.ArgumentParser) -> None:
    from forebay.app.commands.deliver import declare_deliver  # noqa: PLC0415 - likewise

    declare_deliver(parser)


def _declare_manager(parser: argparse.ArgumentParser) -> None:
    declare_store(parser)
    parser.add_argument(
        "--weight",
        metavar="QUEUE=NUMBER",
        type=weight,
        action="append",
        default=[],
        help="work of this queue counts so many times; may be repeated (default: 1)",
    )
    parser.add_argument(
        "--round",
        metavar="SECONDS",
        type=float,
        default=2.0,
        help="how often it looks (default: %(default)s)",
    )
    _declare_metrics(parser)
    levels = ("debug", "info", "warning", "error")
    parser.add_argument(
        "--log-level", choices=levels, default="info", help="the least serious that is written"
    )


def _manage(arguments: argparse.Namespace) -> int:
    from forebay.app.commands.managing import manage  # noqa: PLC0415 - likewise

    return manage(arguments)


def _completion(arguments: argparse.Namespace) -> int:
    return completion.print_script(arguments, build_parser())


COMMANDS: tuple[Command, ...] = (
    Command("up", "server, worker and flows together, until a signal", _up, declare_settings),
    Command("serve", "serve queues over HTTP until a signal", _serve, _declare_server),
    Command("worker", "run a worker of yours until a signal", _work, _declare_worker),
    Command("manager", "share workers among queues until a signal", _manage, _declare_manager),
    Command("deliver", "send a queue's messages to a URL until a signal", _deliver, _declare_deliver),
    Command(
        "destinations",
        "look at where messages are delivered, pause, resume or test it",
        verbs=(
            Command(
                "list",
                "destinations, and how they are",
                destinations.list_destinations,
                destinations.declare_list,
            ),
            Command(
                "pause", "send nothing until it is resumed", destinations.pause, destinations.declare_pause
            ),
            Command("resume", "send again", destinations.resume, destinations.declare_resume),
            Command(
                "test",
                "send a test request, and say what came of it",
                destinations.test,
                destinations.declare_test,
            ),
        ),
    ),
    Command("push", "push lines of a file or of standard input", pushing.push, pushing.declare_push),
    Command("take", "take tasks, and print or settle them", taking.take, taking.declare_take),
    Command("peek", "print what would be handed out next", taking.peek, taking.declare_peek),
    Command("tail", "print what is in a queue's log, and follow it", tailing.tail, tailing.declare_tail),
    Command(
        "queues",
        "make, change, look at and delete queues",
        verbs=(
            Command(
                "list", "all queues, and where their messages are", queues.list_queues, queues.declare_list
            ),
            Command("show", "all about one queue", queues.show, queues.declare_queue),
            Command("create", "make a queue", queues.create, queues.declare_create),
            Command("set", "change settings of a queue", queues.set_queue, queues.declare_set),
            Command("pause", "hand out nothing until it is resumed", queues.pause, queues.declare_queue),
            Command("resume", "hand out again", queues.resume, queues.declare_queue),
            Command("purge", "skip all that waits in a queue", queues.purge, queues.declare_purge),
            Command("delete", "delete a queue and all that is in it", queues.delete, queues.declare_delete),
        ),
    ),
    Command(
        "groups",
        "make, move, look at and delete consumer groups",
        verbs=(
            Command("list", "the groups of a queue", groups.list_groups, queues.declare_queue),
            Command("create", "make a group", groups.create, groups.declare_create),
            Command("seek", "go on from another place in the queue", groups.seek, groups.declare_seek),
            Command("delete", "delete a group", groups.delete, groups.declare_delete),
        ),
    ),
    Command(
        "dead",
        "look at dead letters, redrive or purge them, undo it",
        verbs=(
            Command("list", "dead letters and their reasons", dead.list_letters, dead.declare_list),
            Command("redrive", "hand dead letters out again", dead.redrive, dead.declare_redrive),
            Command("purge", "do away with dead letters", dead.purge, dead.declare_purge),
            Command("undo", "undo a redrive or a purge", dead.undo, dead.declare_undo),
        ),
    ),
    Command("where", "the whole path of one message", looking.where, looking.declare_where),
    Command("ledger", "print where all messages are", books.ledger, books.declare_ledger),
    Command("top", "queues and their rates, live", top.top, top.declare_top),
    Command("doctor", "check what this stands on, and say what helps", doctor.doctor, doctor.declare_doctor),
    Command(
        "config",
        "settings of the server",
        verbs=(
            Command(
                "show",
                "print the settings in effect, and where each comes from",
                config.show,
                config.declare_show,
            ),
            Command(
                "check",
                "say everything that is wrong with the settings",
                config.check,
                config.declare_check,
            ),
        ),
    ),
    Command(
        "contract",
        "contracts: YAML that names queues and their typed fields",
        verbs=(
            Command(
                "check",
                "say all that is wrong with a contract",
                contract.check,
                contract.declare_check,
            ),
            Command(
                "generate",
                "write a Python package from a contract",
                contract.generate,
                contract.declare_generate,
            ),
            Command(
                "diff", "say whether tasks in flight survive a change", contract.diff, contract.declare_diff
            ),
        ),
    ),
    Command(
        "pipeline",
        "flows on Spark: queues, actions, queues or files",
        verbs=(
            Command("run", "run flows until a signal", pipeline.run, pipeline.declare_run),
            Command("check", "say all that is wrong with flows", pipeline.check, pipeline.declare_check),
            Command("list", "the flows of a file", pipeline.list_flows, pipeline.declare_list),
        ),
    ),
    Command(
        "snapshot",
        "rich series of queues, folded on Spark",
        verbs=(
            Command("run", "fold and publish until a signal", snapshot.run, snapshot.declare_run),
            Command("show", "the current snapshot", snapshot.show, snapshot.declare_show),
            Command(
                "shadow",
                "fold, and compare with a fold from nothing and with the store's counters",
                snapshot.shadow,
                snapshot.declare_shadow,
            ),
        ),
    ),
    Command(
        "keys",
        "API keys of the server",
        verbs=(
            Command("create", "make a key, and print it once", keys.create, keys.declare_create),
            Command("list", "print all keys, without their secrets", keys.show, keys.declare_list),
            Command("revoke", "make a key invalid within a second", keys.revoke, keys.declare_revoke),
        ),
    ),
    Command(
        "fastqueue",
        "look at, mend and import the folder of a relay's queue",
        verbs=(
            Command("inspect", "what it holds", fastqueue.inspect_folder, fastqueue.declare_folder),
            Command("verify", "read it all", fastqueue.verify_folder, fastqueue.declare_folder),
            Command("repair", "set aside damage", fastqueue.repair_folder, fastqueue.declare_folder),
            Command(
                "import",
                "copy a queue's blocks into another, also those of metrics-governor",
                fastqueue.import_folder,
                fastqueue.declare_import,
            ),
        ),
    ),
    Command(
        "spool",
        "look at, mend and replay a folder of spool files",
        verbs=(
            Command(
                "status",
                "what a server has in its spool, and how far it is replayed",
                spool_status.status,
                spool_status.declare_status,
            ),
            Command(
                "list", "the files, and how much is in them", spool.list_spool, spool.declare_text_of_folder
            ),
            Command(
                "verify",
                "read every line, and say what is damaged",
                spool.verify,
                spool.declare_text_of_folder,
            ),
            Command(
                "repair",
                "finish what a crash left, and set aside what can't be read",
                spool.repair,
                spool.declare_text_of_folder,
            ),
            Command(
                "replay",
                "put what is in the files into a store, once",
                replaying.replay,
                replaying.declare_replay,
            ),
        ),
    ),
    Command(
        "relay",
        "HTTP in, onto local disk, HTTP out, until a signal",
        relay.relay,
        relay.declare_relay,
        verbs=(
            Command(
                "plan",
                "how much a relay holds, and how soon it is empty",
                relay.show_plan,
                relay.declare_plan,
            ),
            Command(
                "status",
                "the queues of a running relay",
                relay_status.show_status,
                relay_status.declare_status,
            ),
            Command(
                "dead",
                "requests that a relay gave up, and why",
                relay_dead.list_dead,
                relay_dead.declare_dead,
                verbs=(
                    Command("redrive", "send them again", relay_dead.redrive, relay_dead.declare_redrive),
                    Command("purge", "do away with them", relay_dead.purge, relay_dead.declare_purge),
                ),
            ),
        ),
    ),
    Command(
        "archive",
        "messages as Parquet files, before retention drops them",
        verbs=(
            Command("run", "archive what is ready for it now", archive.run, archive.declare_run),
            Command(
                "list", "what an archive holds, and what it lacks", archive.list_archive, archive.declare_list
            ),
            Command("compact", "few large files in place of many", archive.compact, archive.declare_compact),
            Command("verify", "compare the manifest with the files", archive.verify, archive.declare_verify),
            Command("replay", "put a range back into a queue, once", archive.replay, archive.declare_replay),
        ),
    ),
    Command(
        "inbox", "rows of the SQL inbox that no block can hold, and why", inbox.inbox, inbox.declare_inbox
    ),
    Command("completion", "print a script for a shell", _completion, completion.declare_completion),
    Command("demo", "put, take and finish tasks, and print the ledger", books.demo, books.declare_demo),
    Command(
        "upkeep",
        "one round of upkeep: sweep the SQL inbox, drop what is past retention",
        books.upkeep,
        declare_embedded,
    ),
    Command("version", "print the version and exit", _version),
)


_UNRECOGNIZED: Final = "unrecognized arguments: "
_INVALID_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


class _Parser(argparse.ArgumentParser):
    """Takes options anywhere: argparse alone gives up on `push QUEUE --raw FILE`, since FILE is optional."""

    _mixing = False
    _given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and what was most likely meant, instead of everything that there is."""
        self.exit(2, f"{self.prog}: {self._misspelt(message) or message}; see `{self.prog} --help`\n")

    def _misspelt(self, message: str) -> str | None:
        """The option or verb that isn't known. argparse stumbles over what comes after an unknown option."""
        extra = message.removeprefix(_UNRECOGNIZED)
        words = list(self._given) if extra == message else extra.split()
        verb = _INVALID_CHOICE.search(message)
        if verb and verb[1] in words:
            del words[words.index(verb[1]) :]
        known = self._option_string_actions
        for word in (word.partition("=")[0] for word in words if word.startswith("--") and word != "--"):
            if not any(option.startswith(word) for option in known):
                return f"there is no option {word}{_meant(word, known)}"
        return f"there is no {verb[1]!r} here{_meant(verb[1], _choices(verb[2]))}" if verb else None

    def parse_known_args(  # type: ignore[override]  # of the overloads, what argparse calls
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self._given = list(sys.argv[1:] if args is None else args)
        has_verbs = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)  # noqa: SLF001 - argparse has no other way to ask
        if self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = not has_verbs  # parsing them mixed comes back here, twice
        parse = super().parse_known_args if has_verbs else self.parse_known_intermixed_args
        try:
            found, extra = parse(args, namespace)
        finally:
            self._mixing = False
        if extra:  # the parser that knows the options says what is wrong, not the one above it
            self.error(_UNRECOGNIZED + " ".join(extra))
        return found, extra


def _choices(text: str) -> list[str]:
    return [choice.strip(" '") for choice in text.split(",")]


def _meant(word: str, known: Iterable[str]) -> str:
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""


def build_parser(known: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with one subparser per command."""
    parser = _Parser(prog="forebay", description="Forebay: a durable queue for data pipelines.")
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

    0 is success, 1 a finding (the ledger doesn't balance, a check fails, some of it wasn't done), 2 a usage
    error, 3 an error that Forebay explains on standard error, 130 an interruption.
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
    except BrokenPipeError:  # whoever read this has had enough; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
