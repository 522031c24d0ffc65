"""What commands print: JSON for programs, tables and lines for people.

Invariants: data goes to standard output and nothing else does; a payload is printed as text where it is
UTF-8, else in base64 with a mark; what people see has no control characters but line ends.
"""

import base64
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from forebay.model import Message, format_seconds, to_datetime

__all__ = [
    "age_text",
    "message_fields",
    "message_line",
    "print_json",
    "print_line",
    "print_table",
    "time_text",
    "warn",
]

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PIPE_WIDTH: Final = 200
"""Columns of a table that doesn't go to a terminal."""
_MINUTE: Final = 60


def print_json(value: Any) -> None:
    """Print one JSON document on a line."""
    print_line(msgspec.json.encode(value).decode())


def print_line(text: str) -> None:
    """Print a line of data, at once: whoever reads may be waiting for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Say something that is no data."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """Print a table; numbers to the right, with separators."""
    listed = list(rows)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        right = bool(listed) and all(isinstance(row[index], int) for row in listed)
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in listed:
        table.add_row(*map(_cell, row))
    console().print(table, markup=False)


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))


def message_fields(message: Message) -> dict[str, Any]:
    """A message for programs, as `push --objects` reads it; what it doesn't have is left out."""
    fields: dict[str, Any] = payload_fields(message.payload)
    if message.partition:
        fields["partition"] = message.partition
    if message.transaction_id is not None:
        fields["transaction_id"] = message.transaction_id
    if message.headers:
        fields["headers"] = dict(message.headers)
    return fields


def payload_fields(payload: bytes) -> dict[str, str]:
    """A payload for programs: text, or base64 with a mark."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def message_line(id: int, at: int, message: Message) -> str:
    """A message for people: when, which, where, what."""
    fields = payload_fields(message.payload)
    mark = "base64:" if "encoding" in fields else ""
    text = _CONTROL.sub(lambda found: _escaped(found[0]), f"{mark}{fields['payload']}")
    partition = f" [{_cell(message.partition)}]" if message.partition else ""
    return f"{time_text(at)} {id}{partition} {text}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def time_text(at: int | None) -> str:
    """A time for people, to the millisecond, UTC."""
    return "" if at is None else to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def age_text(seconds: float | None) -> str:
    """A duration for people, as exact as it needs to be."""
    if seconds is None:
        return ""
    whole = max(0, round(seconds)) if seconds >= 1 else max(0.0, round(seconds, 1))
    if whole >= 60 * _MINUTE:
        whole = whole // _MINUTE * _MINUTE
    return format_seconds(whole)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair a line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print_line(f"{name:<{width}}  {_cell(value)}".rstrip())
