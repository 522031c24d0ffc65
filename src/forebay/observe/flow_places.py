"""Where flows on Spark are, as their records in the log say: who looks needs no Spark for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.log.seam import Log

__all__ = ["FlowPlace", "flow_places"]

_SPACE: Final = "flow"
"""As in `forebay.spark.flows.place`."""
FLOWS_MAX: Final = 200
_KEY_PARTS: Final = 3


class FlowPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that reads a queue, since it was first run."""

    flow: str
    queue: str
    group: str
    batches: int
    rows_in: int
    rows_out: int
    dead: int
    published_at: int
    """When its last batch was published (µs); 0 before the first."""


class _Record(msgspec.Struct):
    """What is read of a record; the rest is the flow's own."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead: int = 0
    at: int = 0


_decode: Final = msgspec.json.Decoder(_Record).decode


async def flow_places(log: Log) -> Sequence[FlowPlace]:
    """All flows that read queues, without records that can't be read and those of queues that are gone."""
    kept = await log.scan(_SPACE, limit=FLOWS_MAX)
    keys = [each.key.rsplit("/", _KEY_PARTS - 1) for each in kept]
    numbers = {int(key[1]) for key in keys if _is_key(key)}
    if not numbers:
        return ()
    queues = {queue.number: queue for queue in await log.queues(numbers=sorted(numbers))}
    groups = {
        (number, group.number): group.name
        for number, queue in queues.items()
        for group in await log.groups(queue)
    }
    found = []
    for each, key in zip(kept, keys, strict=True):
        if not _is_key(key) or (place := (int(key[1]), int(key[2]))) not in groups:
            continue
        try:
            record = _decode(each.value)
        except msgspec.MsgspecError:
            continue
        found.append(
            FlowPlace(
                flow=key[0],
                queue=queues[place[0]].name,
                group=groups[place],
                batches=record.batches,
                rows_in=record.rows_in,
                rows_out=record.rows_out,
                dead=record.dead,
                published_at=record.at,
            )
        )
    return found


def _is_key(key: Sequence[str]) -> bool:
    return len(key) == _KEY_PARTS and key[1].isdigit() and key[2].isdigit()
