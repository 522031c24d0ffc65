"""All slices folded in this process: from nothing, or from what they were, as Spark does it."""

from __future__ import annotations

import msgspec

from forebay.log.seam import Log
from forebay.model import UnknownQueue
from forebay.observe.labels import LabelRules, LabelSettings
from forebay.spark.snapshot.counts import Counts, total
from forebay.spark.snapshot.slice_fold import SliceState, fold_slice
from forebay.spark.snapshot.survey import Survey, survey

__all__ = ["Recomputed", "recompute"]


class Recomputed(msgspec.Struct, frozen=True):
    """What all slices add up to, and what they are now."""

    counts: Counts
    survey: Survey
    states: dict[tuple[int, int], SliceState]


async def recompute(
    log: Log,
    labels: LabelSettings,
    *,
    pattern: str = ".*",
    before: Recomputed | None = None,
    at: int | None = None,
) -> Recomputed:
    """Fold every slice, as of a time in µs: by default now."""
    found, rules = await survey(log, pattern, labels), LabelRules(labels)
    states, parts = dict[tuple[int, int], SliceState](), list[Counts]()
    for task in found.tasks:
        place = (task.queue.number, task.place)
        known = None if before is None else before.states.get(place)
        try:
            state, counts = await fold_slice(log, task, known, rules, found.at if at is None else at)
        except UnknownQueue:  # it was deleted meanwhile
            continue
        states[place] = state
        parts.append(counts)
    return Recomputed(total(parts), found, states)
