"""What a stream of mode lease holds: claims, in numbered batches, as records of the log.

A batch is written down before Spark hears of it, and taken off once its messages are settled. Whoever goes on
with the query's checkpoint finds it there. Invariant: what was claimed and is in no record is found by
`reclaim`, under the query's own name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.log.values import Claim, Record, Settlement
from forebay.model import SystemClock, bitmap, mint, queue_of
from forebay.spark.logs import Face

SPACE: Final = "spark-lease"
KEPT_SECONDS: Final = 30 * 86_400
_DIGITS: Final = 12

_logger: Final = logging.getLogger("forebay.spark")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a stream of mode lease, as Spark keeps it in its checkpoint."""

    lease: int
    """How many batches there were."""
    owner: str
    """Who holds the claims: the query, also after a restart."""
    group: str
    at: str
    """Which log it is."""


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """A claim, and what of it is read."""

    queue: int
    group: int
    token: int
    first: int
    count: int
    left: bytes
    body_bytes: int
    """How large its block is, as it is stored."""
    partition: str | None

    @classmethod
    def of(cls, claim: Claim, left: bytes) -> Hold:
        """What is held by a claim."""
        block = claim.block
        return cls(
            queue_of(claim.first),
            claim.group,
            claim.token,
            claim.first,
            claim.count,
            left,
            len(block.body),
            block.partition,
        )

    def done(self) -> Settlement:
        """The settlement that all that was read is done."""
        return Settlement(
            group=self.group,
            token=self.token,
            first=self.first,
            count=self.count,
            done=self.left,
            worker="spark",
        )

    def __len__(self) -> int:
        """How many messages are read."""
        return bitmap.count(self.left)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Claims that are read together, and the id under which they are settled, however often."""

    id: bytes
    holds: list[Hold]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Batch).decode


class Holdings:
    """The batches of one query that are not settled, by their numbers."""

    def __init__(self, face: Face, owner: str) -> None:
        self._face = face
        self._owner = owner
        self._batches: dict[int, Batch] | None = None

    def all(self) -> dict[int, Batch]:
        """Every batch that is open: read from the log once, then kept here."""
        if self._batches is None:
            found = self._face(self._face.log.scan(SPACE, f"{self._owner}/"))
            self._batches = {int(kept.key.rpartition("/")[2]): _decode(kept.value) for kept in found}
        return self._batches

    def batch(self, number: int) -> list[Hold]:
        """What one batch holds; looked up when it is not known, since another driver may have made it."""
        if number not in self.all():
            found = self._face(self._face.log.records(SPACE, [self._key(number)]))
            if not found:
                return []
            self.all()[number] = _decode(found[0].value)
        return self.all()[number].holds

    def add(self, number: int, holds: Sequence[Hold]) -> None:
        """Write a batch down; VersionConflict when there is one of that number."""
        expires_at = SystemClock().now() + KEPT_SECONDS * 1_000_000
        batch = Batch(mint(), list(holds))
        record = Record(SPACE, self._key(number), _encode(batch), expires_at=expires_at, version=0)
        self._face(self._face.log.commit(records=[record]))
        self.all()[number] = batch

    def settle_through(self, number: int) -> int:
        """Settle every batch up to a number as done; how many messages. What was lost is with others."""
        done = 0
        for each in sorted(self.all()):
            if each <= number:
                done += self._settle(each)
        return done

    def _settle(self, number: int) -> int:
        batch = self.all()[number]
        settlements = [hold.done() for hold in batch.holds]
        receipt = self._face(self._face.log.commit(settlements=settlements, id=batch.id))
        lost = sum(len(batch.holds[i]) for i in receipt.conflicts)
        if lost:
            _logger.warning("%d messages were read here, and are with other workers as well", lost)
        self._face(self._face.log.commit(records=[Record(SPACE, self._key(number))]))
        del self.all()[number]
        return sum(map(len, batch.holds)) - lost

    def _key(self, number: int) -> str:
        return f"{self._owner}/{number:0{_DIGITS}}"
