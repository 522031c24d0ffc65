"""Block by block, as plain replay does, and counted: for files of which the log knows a block otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.failover.sinks import Addressed, Refused, Sink
from forebay.log.seam import Log
from forebay.log.values import Append, Receipt
from forebay.spark.replay.naming import NamedQueues
from forebay.spark.replay.values import Summary


class CountingLog(NamedQueues):
    """Commits blocks, and adds to a summary what became of them."""

    def __init__(self, log: Log, summary: Summary) -> None:
        super().__init__(log)
        self._summary = summary

    async def commit(self, appends: Sequence[Append]) -> Receipt:
        """Write blocks."""
        receipt = await self._log.commit(appends)
        for append, appended in zip(appends, receipt.appended, strict=True):
            self._summary.add(self._names[append.queue], appended)
        return receipt


class OneByOne:
    """Writes each block by itself: what one of them is refused for says nothing of the others."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks."""
        found = [(place, await self._sink.write([block])) for place, block in enumerate(blocks)]
        return [msgspec.structs.replace(each, place=place) for place, refused in found for each in refused]
