"""Finding one message: rules that hold for every log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from forebay.log.values import OpenClaim, Outcome, StoredBlock
from forebay.model.limits import BLOCK_MESSAGES_CEILING

OUTCOMES_MAX: Final = 10_000
"""Entries of the outcome log on one block and group that are searched for a message, newest first."""


def first_claim(message_id: int, block: StoredBlock | None) -> int:
    """The least id that a claim on a message can begin with; a block that was dropped had so many at most."""
    return message_id - BLOCK_MESSAGES_CEILING + 1 if block is None else block.first


def soonest(claims: Iterable[OpenClaim]) -> OpenClaim | None:
    """Of the open claims on a message, the one that is held, or else the one whose time comes first.

    There can be two: a dead letter that was redriven, and the message itself, to which its group went back.
    """
    return min(claims, key=_readiness, default=None)


def _readiness(claim: OpenClaim) -> tuple[bool, int, int, bool, str]:
    return claim.owner is None, claim.due_at, claim.attempts, not claim.handed, claim.owner or ""


def is_about(outcome: Outcome, message_id: int) -> bool:
    """Whether an entry of the outcome log says something of a message."""
    offset = message_id - outcome.first
    if not 0 <= offset < outcome.count:
        return False
    return (
        has(outcome.done, offset)
        or has(outcome.expired, offset)
        or any(d.offset <= offset < d.offset + d.count for d in outcome.deferred)
        or any(death[0] == offset for death in outcome.dead)
    )


def has(bits: bytes, offset: int) -> bool:
    """Whether a message is in a bitmap; nothing is in one that was left out."""
    return bool(bits) and bool(bits[offset // 8] >> offset % 8 & 1)
