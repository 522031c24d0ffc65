"""Where flows on Spark are, and how, as their records in the log say: who looks needs no Spark for it.

One record is written with each batch of a flow, and says what it has done. Another one is written by the
pipeline now and then, says how the flow is, and expires when nobody writes it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Kept

__all__ = ["NO_FLOWS", "STATES", "FlowPlace", "FlowPlaces", "FlowState", "flow_places"]

_SPACE: Final = "flow"
"""As in `forebay.spark.flows.place`."""
STATES: Final = "flow-state"
"""The space of the records of `FlowState`."""
FLOWS_MAX: Final = 200
_KEY_PARTS: Final = 3
_Key: TypeAlias = tuple[str, str, str]
"""A flow, its queue and its group."""


class FlowPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that reads a queue, since it was first run."""

    flow: str
    queue: str
    group: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead: int = 0
    published_at: int = 0
    """When its last batch was published (µs); 0 before the first."""
    state: str | None = None
    """waiting, running, failed (it is started again), or done; None where no pipeline says how it is."""
    error: str | None = None
    """Why it failed last, until it has run well for a while."""


class FlowPlaces(msgspec.Struct, frozen=True):
    """Flows by name."""

    flows: Sequence[FlowPlace]
    is_cut: bool = False
    """Whether there are more."""


NO_FLOWS: Final = FlowPlaces(())


class _Record(msgspec.Struct):
    """What is read of a record; the rest is the flow's own."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead: int = 0
    at: int = 0


class FlowState(msgspec.Struct):
    """How a flow is, as its pipeline writes it down."""

    flow: str
    queue: str
    group: str
    state: str
    error: str | None = None


_decode: Final = msgspec.json.Decoder(_Record).decode
_decode_state: Final = msgspec.json.Decoder(FlowState).decode


async def flow_places(log: Log) -> FlowPlaces:
    """All flows that read queues, without records that can't be read and those of queues that are gone."""
    kept = await log.scan(_SPACE, limit=FLOWS_MAX + 1)
    states = await log.scan(STATES, limit=FLOWS_MAX + 1)
    is_cut = max(len(kept), len(states)) > FLOWS_MAX
    places = await _places(log, kept[:FLOWS_MAX])
    for each in states[:FLOWS_MAX]:
        try:
            found = _decode_state(each.value)
        except msgspec.MsgspecError:
            continue
        key = (found.flow, found.queue, found.group)
        place = places.get(key) or FlowPlace(flow=found.flow, queue=found.queue, group=found.group)
        places[key] = msgspec.structs.replace(place, state=found.state, error=found.error)
    return FlowPlaces([places[key] for key in sorted(places)][:FLOWS_MAX], is_cut)


async def _places(log: Log, kept: Sequence[Kept]) -> dict[_Key, FlowPlace]:
    """The flows by their records of what they have done."""
    keys = [each.key.rsplit("/", _KEY_PARTS - 1) for each in kept]
    numbers = {int(key[1]) for key in keys if _is_key(key)}
    if not numbers:
        return {}
    queues = {queue.number: queue for queue in await log.queues(numbers=sorted(numbers))}
    groups = {
        (number, group.number): group.name
        for number, queue in queues.items()
        for group in await log.groups(queue)
    }
    found = dict[_Key, FlowPlace]()
    for each, key in zip(kept, keys, strict=True):
        if not _is_key(key) or (place := (int(key[1]), int(key[2]))) not in groups:
            continue
        try:
            record = _decode(each.value)
        except msgspec.MsgspecError:
            continue
        names = (key[0], queues[place[0]].name, groups[place])
        found[names] = FlowPlace(
            flow=names[0],
            queue=names[1],
            group=names[2],
            batches=record.batches,
            rows_in=record.rows_in,
            rows_out=record.rows_out,
            dead=record.dead,
            published_at=record.at,
        )
    return found


def _is_key(key: Sequence[str]) -> bool:
    return len(key) == _KEY_PARTS and key[1].isdigit() and key[2].isdigit()
