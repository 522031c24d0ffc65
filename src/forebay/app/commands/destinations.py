"""`forebay destinations`: list, pause, resume, test."""

import argparse
import asyncio
from pathlib import Path

from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import print_json, print_line, print_table, time_text
from forebay.app.configuring import load_settings
from forebay.deliver.destination_board import DestinationBoard, DestinationStatus, destination_board_of
from forebay.deliver.tester import ConfiguredTester, DestinationTest, DestinationTester
from forebay.model import Misconfigured, Rejected
from forebay.store.seam import Store

__all__ = [
    "declare_list", "declare_pause", "declare_resume", "declare_test", "list_destinations", "pause", "resume",
    "test",
]  # fmt: skip


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay destinations list`."""
    declare_store(parser)


def declare_resume(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay destinations resume`."""
    parser.add_argument("name", metavar="NAME", help="the name of the destination")
    declare_store(parser)


def declare_pause(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay destinations pause`."""
    declare_resume(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for those who find it paused")


def declare_test(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay destinations test`."""
    parser.add_argument("name", metavar="NAME", help="the name of the destination in the section deliver")
    parser.add_argument("--config", metavar="FILE", help="send from here, by this configuration of a server")
    declare_store(parser)


@on_store
async def list_destinations(store: Store, arguments: argparse.Namespace) -> int:
    """Print every destination, how it is, and who delivers to it."""
    found = (await _board(store).destinations()).destinations
    if arguments.json:
        print_json(found)
        return 0
    columns = (
        "destination",
        "queue",
        "group",
        "state",
        "breaker",
        "in hand",
        "delivered",
        "failed",
        "dead",
        "last failure",
    )
    print_table(columns, [row for status in found for row in _rows(status)])
    return 0


def _rows(status: DestinationStatus) -> list[tuple[object, ...]]:
    state = "delivering" if status.reports else "nobody delivers"
    if status.pause is not None:
        word = "disabled" if status.pause.by_itself else "paused"
        reason = f": {status.pause.reason}" if status.pause.reason else ""
        state = f"{word} since {time_text(status.pause.since)}{reason}"
    if not status.reports:
        return [(status.name, "", "", state, "", "", "", "", "", "")]
    return [
        (
            status.name, report.queue, report.group, state, report.breaker, report.in_hand,
            report.delivered, report.failed, report.buried, report.last_failure[:60],
        )
        for report in status.reports
    ]  # fmt: skip


@on_store
async def pause(store: Store, arguments: argparse.Namespace) -> int:
    """Pause a destination: within seconds nothing more is sent to it."""
    await _known(store, arguments.name)
    _print(await _board(store).pause_destination(arguments.name, arguments.reason), arguments)
    return 0


@on_store
async def resume(store: Store, arguments: argparse.Namespace) -> int:
    """Resume a destination."""
    await _known(store, arguments.name)
    _print(await _board(store).resume_destination(arguments.name), arguments)
    return 0


def test(arguments: argparse.Namespace) -> int:
    """Have a test request sent to a destination, and print what came of it; 0 if it was delivered."""
    if arguments.config is None:
        return _test_by_server(arguments)
    tester = ConfiguredTester(load_settings(file=Path(arguments.config)).deliveries)
    return _print_test(asyncio.run(tester.test_destination(arguments.name)), arguments)


@on_store
async def _test_by_server(store: Store, arguments: argparse.Namespace) -> int:
    if not isinstance(store, DestinationTester):
        raise Misconfigured(
            "only a server knows its destinations",
            hint="name its --store http://..., or its file by --config",
        )
    return _print_test(await store.test_destination(arguments.name), arguments)


def _print_test(tested: DestinationTest, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(tested)
    else:
        print_line(f"delivered: {tested.status}" if tested.is_delivered else f"failed: {tested.reason}")
        if tested.answer:
            print_line(tested.answer)
    return 0 if tested.is_delivered else 1


def _print(status: DestinationStatus, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(status)
    else:
        print_line(f"{status.name} is {'paused' if status.pause is not None else 'resumed'}")


async def _known(store: Store, name: str) -> None:
    """Refuse a name that no process delivers to, since it is most likely a mistake."""
    known = [status.name for status in (await _board(store).destinations()).destinations]
    if name not in known:
        hint = f"known: {', '.join(known)}" if known else "start a delivery first"
        raise Rejected(f"there is no destination {name!r}", hint=hint)


def _board(store: Store) -> DestinationBoard:
    board = destination_board_of(store)
    if board is None:
        raise Misconfigured("this store has no destinations", hint="name a server or a log with --store")
    return board
