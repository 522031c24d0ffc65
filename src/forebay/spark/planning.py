"""The ends of batches as records of the log: what was planned once is planned the same way again.

A record is kept for a day, by group and place. Those that this process wrote go earlier: after an hour no
power failure takes back a checkpoint any more.
"""

from __future__ import annotations

import hashlib
from collections import deque
from time import monotonic
from typing import Final

import msgspec

from forebay.log.seam import VersionConflict
from forebay.log.values import Record
from forebay.model import SystemClock
from forebay.spark.logs import Face
from forebay.spark.offsets import Offset

SPACE: Final = "spark-plan"
KEPT_SECONDS: Final = 86_400
OWN_KEPT_SECONDS: Final = 3_600
_FORGOTTEN_MAX: Final = 100
"""Old records that go with a new one."""


class Plans:
    """The plans of one group that reads certain queues: those named, or those that match."""

    def __init__(self, face: Face, group: str, subscription: str) -> None:
        self._face = face
        self._group = group
        self._subscription = subscription
        self._written: deque[tuple[float, str]] = deque()

    def follow(self, start: Offset, end: Offset) -> Offset:
        """The end of the batch from `start`: the one that was planned before, or else this one, for good."""
        key = plan_key(self._group, self._subscription, start)
        if (planned := self._planned(key)) is not None:
            return planned
        expires_at = SystemClock().now() + KEPT_SECONDS * 1_000_000
        record = Record(SPACE, key, msgspec.json.encode(end), expires_at=expires_at, version=0)
        try:
            self._face(self._face.log.commit(records=[record, *self._old()]))
        except VersionConflict:
            planned = self._planned(key)
            if planned is None:
                raise
            return planned
        self._written.append((monotonic(), key))
        return end

    def _planned(self, key: str) -> Offset | None:
        found = self._face(self._face.log.records(SPACE, [key]))
        return msgspec.json.decode(found[0].value, type=Offset) if found else None

    def _old(self) -> list[Record]:
        """Records of this process that nobody will ask for."""
        old: list[Record] = []
        while self._written and len(old) < _FORGOTTEN_MAX:
            if self._written[0][0] > monotonic() - OWN_KEPT_SECONDS:
                break
            old.append(Record(SPACE, self._written.popleft()[1]))
        return old


def plan_key(group: str, subscription: str, start: Offset) -> str:
    """The key of the plan from a place: by what is read, not by how the place is written.

    Queries of one group that read other queues don't follow each other.
    """
    places = sorted((start.numbers.get(name, 0), at) for name, at in start.queues.items())
    return f"{group}/{hashlib.sha256(msgspec.json.encode((subscription, places))).hexdigest()[:32]}"
