"""How the flows of a pipeline are, as records of the log, for people who look at a server's page.

Written when a state changes, and now and then; who ends leaves records that expire soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from forebay.log.values import Record
from forebay.model import redact
from forebay.observe.flow_places import STATES, FlowState
from forebay.spark.flows.pipeline import Status
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.values import PipelineSpec, QueueSource

__all__ = ["Reports"]

REPORT_SECONDS: Final = 10.0
EXPIRES_SECONDS: Final = 30.0
ERROR_CHARACTERS_MAX: Final = 500
_SECOND: Final = 1_000_000


class Reports:
    """Writes how flows that read queues are."""

    def __init__(
        self,
        around: Surroundings,
        spec: PipelineSpec,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._around = around
        self._sources = {
            flow.name: flow.source for flow in spec.flows if isinstance(flow.source, QueueSource)
        }
        self._clock = clock
        self._wall = wall
        self._said: list[tuple[str, str, str | None]] = []
        self._due_at = 0.0

    def __call__(self, statuses: Sequence[Status]) -> None:
        """Write, if something has changed, or it was long ago."""
        said = [(each.name, each.state, each.error) for each in statuses if each.name in self._sources]
        if not said or (said == self._said and self._clock() < self._due_at):
            return
        face = self._around.face()
        face(face.log.commit(records=self._records(statuses)))
        self._said, self._due_at = said, self._clock() + REPORT_SECONDS

    def _records(self, statuses: Sequence[Status]) -> list[Record]:
        expires_at = round((self._wall() + EXPIRES_SECONDS) * _SECOND)
        return [
            Record(STATES, each.name, self._value(each), expires_at)
            for each in statuses
            if each.name in self._sources
        ]

    def _value(self, status: Status) -> bytes:
        source = self._sources[status.name]
        error = None if status.error is None else redact(status.error)[:ERROR_CHARACTERS_MAX]
        return msgspec.json.encode(FlowState(status.name, source.queue, source.group, status.state, error))
