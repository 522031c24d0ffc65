"""Finding the rows on which an action fails, when it can only be tried on many at once: a pure function.

Invariants: what is returned is in the order of the rows; every row is in exactly one part that went well, or
is dead; no more than a bounded number of rows is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from forebay.model import Conflict, Misconfigured, Rejected, Unavailable

DEAD_MAX: Final = 1_000
"""Rows of a batch that are given up at most: with more, it isn't the rows."""
NOT_OF_ROWS: Final = (Unavailable, Conflict, Misconfigured, ImportError)
"""What an action may raise that says nothing of its rows: a log that is away, a module that isn't there."""

Result = TypeVar("Result")


class TooManyDead(Rejected):
    """So many rows of a batch fail that the flow itself is taken to be wrong: none of them is given up."""


class DeadRow(msgspec.Struct, frozen=True):
    """A row that is given up: its sequence number, and why."""

    seq: int
    action: str
    error: str
    attempts: int


class RowsFail(Exception):  # noqa: N818 - it never leaves a flow
    """An attempt on rows failed, and it may be the rows' fault."""


def isolate(
    first: int,
    end: int,
    attempt: Callable[[int, int], Result],
    bury: Callable[[int, RowsFail], DeadRow],
    *,
    tries: int,
    dead_max: int = DEAD_MAX,
) -> tuple[list[Result], list[DeadRow]]:
    """Try all rows from `first` up to `end`, `tries` times; then halves, down to those that fail alone.

    `attempt` raises RowsFail where it failed. `bury` says what becomes of a row that fails alone.
    """
    went_well: list[Result] = []
    dead: list[DeadRow] = []
    waiting = [(first, end, tries)]
    while waiting:
        start, stop, left = waiting.pop()
        try:
            went_well.append(attempt(start, stop))
        except RowsFail as error:
            if left > 1:
                waiting.append((start, stop, left - 1))
            elif stop - start > 1:
                middle = (start + stop) // 2
                waiting += [(middle, stop, 1), (start, middle, 1)]
            else:
                dead.append(bury(start, error))
                check_dead(len(dead), dead_max, dead[-1].error)
    return went_well, dead


def check_dead(count: int, most: int = DEAD_MAX, error: str = "") -> None:
    """Raise TooManyDead when more rows fail than a batch may give up."""
    if count > most:
        said = f"; the last one: {error}" if error else ""
        text = f"over {most:,} rows of one batch fail{said}"
        raise TooManyDead(text, hint="correct the action; nothing was given up, and the flow tries again")
