"""`forebay destinations`: list, pause, resume, test."""

import argparse
import asyncio
import secrets
from pathlib import Path

import msgspec

from forebay.app.commands.opened import declare_store, declare_text, on_store
from forebay.app.commands.output import print_json, print_line, print_table, time_text
from forebay.app.configuring import load_settings
from forebay.deliver.destination_board import DestinationBoard, DestinationStatus, destination_board_of
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.settings import DestinationSettings
from forebay.deliver.values import Outcome, Request
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
    parser.add_argument("--config", metavar="FILE", required=True, help="the configuration of the server")
    declare_text(parser)


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
    """Send a destination a test request, and print what came of it; 0 if it was delivered."""
    deliveries = load_settings(file=Path(arguments.config)).deliveries
    if arguments.name not in deliveries:
        known = ", ".join(deliveries) or "there are none"
        raise Rejected(f"{arguments.config} has no destination {arguments.name!r}", hint=f"known: {known}")
    outcome = asyncio.run(_test(deliveries[arguments.name].destination))
    if arguments.json:
        print_json({"status": outcome.status, "error_class": outcome.error_class, "reason": outcome.reason})
    else:
        what = f"delivered: {outcome.status}" if outcome.is_delivered else f"failed: {outcome.reason}"
        print_line(what)
        if outcome.answer:
            print_line(outcome.answer.decode("utf-8", "replace"))
    return 0 if outcome.is_delivered else 1


async def _test(settings: DestinationSettings) -> Outcome:
    destination = HttpDestination(settings, sends_id=True)
    message = msgspec.json.encode({"type": "forebay.test", "data": {"text": "a test from Forebay"}})
    body = {"message": message, "json": b"[" + message + b"]", "ndjson": message + b"\n"}[settings.body]
    kind = b"application/x-ndjson" if settings.body == "ndjson" else b"application/json"
    request = Request(settings.method.encode(), settings.address.target, ((b"content-type", kind),), body)
    try:
        return await destination.send(destination.prepare(request, id=f"test_{secrets.token_hex(8)}"))
    finally:
        await destination.close()


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
