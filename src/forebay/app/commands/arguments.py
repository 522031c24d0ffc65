"""Words of the command line as values; a word that can't be read is a usage error, which says why."""

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from forebay.log.values import Position, Start
from forebay.model import Rejected, SystemClock, from_datetime, parse_message_id, parse_seconds

__all__ = [
    "IDS_MAX",
    "address",
    "count",
    "declare_page",
    "duration",
    "id_range",
    "ids_of",
    "moment",
    "pair",
    "place",
    "ranges",
    "weight",
]

_MOMENT_HINT: Final = "write it as 2026-01-31T12:00:00Z, or as 10m for ten minutes ago"
IDS_MAX: Final = 1_000_000
"""Message ids that one command takes."""


def address(text: str) -> str:
    """Where to listen: `host:port`, with port 0 for a free one."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not host:port, such as 127.0.0.1:9100")
    return text


def duration(text: str) -> float:
    """Seconds: `30s`, `1h30m`, or a plain number."""
    try:
        return parse_seconds(text)
    except Rejected as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):  # noqa: PLR2004 - a billion
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a number from 1 on")
    return int(text)


def declare_page(parser: argparse.ArgumentParser) -> None:
    """The arguments of lists of queues: which of very many."""
    parser.add_argument(
        "--after", metavar="NUMBER", type=count, default=0, help="only queues past this number"
    )
    parser.add_argument("--limit", metavar="N", type=count, help="up to so many queues, at most 1000")


def moment(text: str) -> int:
    """A time in µs: an ISO date with a time zone, or how long ago."""
    try:
        return SystemClock().now() - round(parse_seconds(text) * 1_000_000)
    except Rejected:
        pass
    try:
        return from_datetime(datetime.fromisoformat(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is no time; {_MOMENT_HINT}") from None
    except Rejected as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def place(text: str) -> Start:
    """A place in a queue: `earliest`, `latest`, a time, or `#` with a sequence number."""
    if text == "earliest":
        return "earliest"
    if text.startswith("#"):
        if not (text[1:].isascii() and text[1:].isdigit() and int(text[1:]) > 0):
            raise argparse.ArgumentTypeError(f"{text[:64]!r} is no sequence number such as #1000")
        return Position(int(text[1:]))
    return "latest" if text == "latest" else moment(text)


def pair(text: str) -> tuple[str, str]:
    """A name and a value: `name=value`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not name=value")
    return name, value


def weight(text: str) -> tuple[str, float]:
    """The name of a queue and a number: `queue=2.5`."""
    name, value = pair(text)
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not name=number") from None


def id_range(text: str) -> range:
    """A message id, or `first-last` for all from one to another."""
    first, sign, last = text.partition("-")
    try:
        begin = parse_message_id(first)
        end = parse_message_id(last) if sign else begin
    except Rejected as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if end < begin:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return range(begin, end + 1)


def ids_of(parts: Iterable[range]) -> list[int]:
    """The ids of ranges, ascending, each once."""
    found: list[range] = list(parts)
    if sum(map(len, found)) > IDS_MAX:
        raise Rejected(f"more than {IDS_MAX:,} message ids are named", hint="name fewer at once")
    return sorted({id for part in found for id in part})


def ranges(ids: Iterable[int]) -> list[str]:
    """Ids as `id_range` reads them, runs of consecutive ones together."""
    runs: list[list[int]] = []
    for id in sorted(ids):
        if runs and id == runs[-1][1] + 1:
            runs[-1][1] = id
        else:
            runs.append([id, id])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
