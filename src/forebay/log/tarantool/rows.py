"""Rows of Tarantool as values of the seam: sequence numbers become message ids, strings bytes or texts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from forebay.log.claiming import decode_outcome
from forebay.log.finding import soonest
from forebay.log.values import (
    Claim,
    DeadLetter,
    Group,
    GroupStats,
    Kept,
    Letter,
    OpenClaim,
    OpenRun,
    Outcome,
    Progress,
    Queue,
    QueueSettings,
    Standing,
    StoredBlock,
)
from forebay.model import SEQUENCE_BITS, bitmap

Row = Any
"""A list of what Tarantool's fields hold."""


def raw(text: str) -> bytes:
    """The bytes of one of Tarantool's strings."""
    return text.encode("latin-1")


def text_of(text: str) -> str:
    """The text that one of Tarantool's strings holds."""
    return text if text.isascii() else raw(text).decode("utf-8", "surrogatepass")


def _maybe_text(text: str | None) -> str | None:
    return None if text is None else text_of(text)


def message_id(queue: int, sequence: int) -> int:
    """A message of a queue, unchecked: the log itself has numbered it."""
    return queue << SEQUENCE_BITS | sequence


@lru_cache(maxsize=1024)
def _settings(text: str) -> QueueSettings:
    return msgspec.json.decode(text, type=QueueSettings)


def queue_of_row(row: Row) -> Queue:
    """A queue; settings come as JSON."""
    number, name, settings, created_at = row[:4]
    return Queue(number, text_of(name), _settings(text_of(settings)), created_at)


def group_of_row(row: Row) -> Group:
    """A group."""
    number, queue, name, start, _, sought = row[:6]
    return Group(number, queue, text_of(name), start, sought)


def block_of_row(row: Row) -> StoredBlock:
    """A block."""
    queue, last, count, appended_at, _, block_id, partition, _, body = row
    first = message_id(queue, last) - count + 1
    return StoredBlock(first, count, raw(block_id), appended_at, _maybe_text(partition), raw(body))


def quarantined_of_row(row: Row) -> StoredBlock:
    """A block that could not be read."""
    queue, first, count, appended_at, block_id, partition, body = row
    first = message_id(queue, first)
    return StoredBlock(first, count, raw(block_id), appended_at, _maybe_text(partition), raw(body))


def claim_of_row(group: Group, row: Row) -> Claim:
    """A claim with its block."""
    token, first, count, done, handed, attempts, start_time, prev_start_time, block = row
    nothing = bitmap.empty(count)
    return Claim(
        token, group.number, message_id(group.queue, first), count,
        raw(done) if done else nothing, raw(handed) if handed else nothing,
        attempts, start_time, prev_start_time, block_of_row(block),
    )  # fmt: skip


def letter_of_row(group: Group, row: Row) -> Letter:
    """A dead letter, whatever has become of it."""
    _, sequence, died_at, attempts, reason, body, state, changed_at, _, _ = row
    found = message_id(group.queue, sequence)
    return Letter(DeadLetter(found, died_at, text_of(reason), attempts, raw(body)), state, changed_at)


def outcome_of_row(group: Group, row: Row) -> Outcome:
    """An entry of the outcome log."""
    _, _, _, at, first, count, body = row
    return decode_outcome(message_id(group.queue, first), at, count, raw(body))


def progress_of_row(row: Row) -> Progress:
    """How far a group has come."""
    at, group_row, upcoming, floor, ordered, lanes, claims, dead = row
    group = group_of_row(group_row)
    _, _, _, start, position, _, earlier, _, _, _, _, purged, _, _ = group_row
    return Progress(
        at=at,
        group=group,
        earlier=earlier,
        purged=purged,
        next=upcoming,
        floor=floor,
        position=start if ordered else position,
        lanes={text_of(name): place for name, place in lanes},
        open=[
            OpenRun(
                token, message_id(group.queue, first), count, _bits(count, done), _bits(count, handed), *rest
            )
            for token, first, count, done, handed, *rest in claims
        ],
        dead=[(message_id(group.queue, sequence), died_at) for sequence, died_at in dead],
    )


def _bits(count: int, text: str | None) -> bytes:
    return raw(text) if text else bitmap.empty(count)


def kept_of_row(row: Row) -> Kept:
    """A record."""
    _, key, version, updated_at, expires_at, value = row
    return Kept(text_of(key), raw(value), version, updated_at, expires_at)


def standing_of_row(row: Row) -> Standing:
    """Where a message is for one group; `outcomes` newest first, and not all of them about it."""
    group, claimed, claims, letter, corrupt, outcomes = row
    found = group_of_row(group)
    return Standing(
        group=found,
        claimed=claimed,
        claim=soonest(OpenClaim(_maybe_text(owner), *rest) for owner, *rest in claims),
        letter=None if letter is None else letter_of_row(found, letter),
        corrupt=corrupt,
        outcomes=[outcome_of_row(found, outcome) for outcome in outcomes],
    )


def group_stats_of_row(row: Row, upcoming: int, counts: Row, delayed: int) -> GroupStats:
    """A group's counters and open claims; `upcoming` is the queue's next sequence number."""
    group = group_of_row(row)
    earlier, claimed, skipped, done, dead, purged, expired, corrupt = row[6:]
    held, handed, deferred, due = counts
    accepted = earlier + upcoming - group.start
    return GroupStats(
        group=group,
        accepted=accepted,
        ready=accepted - claimed - skipped - delayed,
        held=held,
        deferred=deferred,
        done=done,
        dead=dead,
        purged=purged,
        expired=expired + skipped,
        corrupt=corrupt,
        handed=handed,
        due=due,
        delayed=delayed,
    )
