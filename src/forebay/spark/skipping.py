"""What readers left out because of `failOnDataLoss=false`, as records of the log, for all to count.

Spark has no counter that a source in Python could use, neither in its driver nor in its executors. A record
is one range of one queue, and its key is made of that: a task that is tried again, a plan that is made
again, or another reader count it once. Readers that began at different places may have found ranges that
overlap. Records go after 30 days.
"""

from __future__ import annotations

import logging
from typing import Final, Literal

import msgspec

from forebay.log.values import Queue, Record
from forebay.model import ForebayError, SystemClock
from forebay.spark.logs import Face

SPACE: Final = "spark-skipped"
KEPT_SECONDS: Final = 30 * 86_400
Reason = Literal["gone", "damaged"]
_PAGE: Final = 10_000

_logger: Final = logging.getLogger("forebay.spark")


class Skipped(msgspec.Struct, frozen=True):
    """Consecutive messages that were left out, the last time `at`."""

    queue: str
    first: int
    last: int
    reason: Reason
    at: int


def skip(face: Face, queue: Queue, first: int, end: int, text: str, *, reason: Reason = "gone") -> None:
    """Count messages from `first` up to, but not including, `end` as left out; `text` is for the warning.

    A log that doesn't take the record doesn't end the read.
    """
    _logger.warning("skipped: %s", text)
    now = SystemClock().now()
    value = msgspec.json.encode(Skipped(queue.name, first, end - 1, reason, now))
    key = f"{queue.number}/{first}-{end - 1}"
    record = Record(SPACE, key, value, expires_at=now + KEPT_SECONDS * 1_000_000)
    try:
        face(face.log.commit(records=[record]))
    except ForebayError as error:
        _logger.warning("what was skipped could not be counted: %s", error)


def skipped(face: Face) -> list[Skipped]:
    """All that was left out, by queue and range."""
    found: list[Skipped] = []
    after = ""
    while page := face(face.log.scan(SPACE, after=after, limit=_PAGE)):
        after = page[-1].key
        found += [msgspec.json.decode(kept.value, type=Skipped) for kept in page]
    return sorted(found, key=lambda each: (each.queue, each.first, each.last))
