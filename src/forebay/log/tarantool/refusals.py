"""What a refusal of a procedure means to the caller of the seam."""

from __future__ import annotations

from forebay.log.claiming import unknown_group
from forebay.log.registry import unknown_queue
from forebay.log.seeking import kept_position
from forebay.log.tarantool.server import Refused
from forebay.log.values import Group, Position, Queue, Start
from forebay.model import Rejected


def no_queue(refused: Refused, queue: Queue) -> Exception:
    """The error for a queue that isn't there."""
    assert refused.kind == "unknown_queue", refused
    return unknown_queue(queue.name, ())


def no_group(refused: Refused, group: Group) -> Exception:
    """The error for a group that isn't there, or whose queue isn't."""
    if refused.kind == "unknown_queue":
        return unknown_queue(f"number {group.queue}", ())
    assert refused.kind == "unknown_group", refused
    return unknown_group(group)


def as_start(start: Start) -> tuple[str, int | None]:
    """Where a group begins, as the procedures want to hear it."""
    if isinstance(start, Position):
        return "position", start.sequence
    return (start, None) if isinstance(start, str) else ("time", start)


def no_start(refused: Refused, start: Start) -> Exception | None:
    """The error for a position past the end, if it is that."""
    if refused.kind != "past_end":
        return None
    assert isinstance(start, Position), start
    try:
        kept_position(start, *refused.detail)
    except Rejected as error:
        return error
    raise AssertionError(refused)
