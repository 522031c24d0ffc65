"""One block as the fold keeps it: labels and statuses of its messages, and what they add up to.

Pure functions on numbers of numpy's. Invariants: what a block adds up to is a function of what the log says
of it, and of the time; once nothing of it can change by time alone, or by work that is under way, only the
sums are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from forebay.log.values import Outcome, StoredBlock
from forebay.model import Block, Corrupt, decode, sequence_of
from forebay.observe.labels import LABELS, LabelRules, filled
from forebay.spark.snapshot.counts import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    LEASED,
    NONE,
    PASSED,
    PASSED_CODE,
    READY,
    STATUSES,
    Counts,
)
from forebay.spark.snapshot.image import GroupImage

__all__ = ["BlockFold", "Ends", "Labelled", "count_up", "ends_of", "labelled", "lone", "statuses"]

_AT: Final = {label: LABELS.index(label) for label in LABELS}
_OPEN: Final = (READY, LEASED, DELAYED)
_INDEX: Final = np.dtype("<u4")
_TIME: Final = np.dtype("<i8")


class Labelled(msgspec.Struct, array_like=True):
    """The messages of a block by their labels, and when each could first be taken."""

    table: list[tuple[str, ...]]
    index: bytes
    """By message its place in the table; nothing where all have the first."""
    starts: bytes
    """By message a time in µs; nothing where all have `since`."""
    since: int
    appended_at: int
    partition: str

    def places(self, count: int) -> Any:
        """By message its place in the table."""
        return np.frombuffer(self.index, _INDEX) if self.index else np.zeros(count, _INDEX)

    def times(self, count: int) -> Any:
        """By message since when it can be taken."""
        return np.frombuffer(self.starts, _TIME) if self.starts else np.full(count, self.since, _TIME)


class Ends(msgspec.Struct, array_like=True):
    """What the outcome log says of a block for one group."""

    last: bytes
    """By message the status of its last outcome; nothing where there is none."""
    attempts: list[tuple[int, int, int, int]]
    """Place in the table of labels, status, code, and how many."""


class BlockFold(msgspec.Struct, array_like=True):
    """A block, or a single message whose block is gone."""

    first: int
    count: int
    counts: bytes
    """What it adds up to: sums."""
    ages: bytes = b""
    """Since when what is ready waits; nothing where nothing is."""
    next_due: int | None = None
    """When the first of its messages that are delayed is due."""
    labelled: Labelled | None = None
    """None once it is settled: nothing of it changes without being noticed."""
    ends: dict[int, Ends] = msgspec.field(default_factory=dict)
    """By the number of a group."""
    is_lone: bool = False

    @property
    def end(self) -> int:
        """The sequence number behind it."""
        return self.first + self.count


def labelled(queue: str, block: StoredBlock, rules: LabelRules) -> Labelled:
    """The labels of a stored block; of one that can't be read, those of a message without headers."""
    try:
        decoded = block.decode(queue)
    except Corrupt:
        values = rules.values(queue, None, block.partition or "")
        return Labelled([values], b"", b"", block.appended_at, block.appended_at, block.partition or "")
    found = _labelled(queue, decoded, rules, block.accepted_at)
    found.appended_at, found.partition = block.appended_at, block.partition or ""
    return found


def lone(queue: str, body: bytes | None, rules: LabelRules) -> Labelled:
    """The labels of a dead letter, by its own copy of the message."""
    if body is None:
        return Labelled([rules.values(queue, None, "")], b"", b"", 0, 0, "")
    try:
        block = decode(body)
    except Corrupt:
        return lone(queue, None, rules)
    return _labelled(queue, block, rules, 0)


def _labelled(queue: str, block: Block, rules: LabelRules, since: int) -> Labelled:
    count = len(block)
    places, distinct = _distinct(block, with_partition=rules.needs_partition)
    table: dict[tuple[str, ...], int] = {}
    renumbered = [
        table.setdefault(rules.values(queue, headers, name), len(table)) for headers, name in distinct
    ]
    index = b""
    if len(table) > 1:
        index = np.array(renumbered, _INDEX)[places].astype(_INDEX).tobytes()
    starts = b""
    if block.start_times is not None:
        given = np.array([since if at is None else max(at, since) for at in block.start_times], _TIME)
        starts = given.tobytes()
    assert len(starts) in (0, count * _TIME.itemsize)
    return Labelled(list(table), index, starts, since, since, "")


def _distinct(block: Block, *, with_partition: bool) -> tuple[Any, list[tuple[Mapping[str, str], str]]]:
    """By message its place among what differs, and what differs: headers, and partitions if they matter."""
    count = len(block)
    headers = block.header_table or [{}]
    codes = np.zeros(count, np.int64) if block.header_index is None else np.array(block.header_index)
    partitions = block.partition_table if with_partition else [block.partition_table[0]]
    if with_partition and block.partition_index is not None:
        codes = codes * len(partitions) + np.array(block.partition_index)
    else:
        codes = codes * len(partitions)
    found, places = np.unique(codes, return_inverse=True)
    return places, [(headers[code // len(partitions)], partitions[code % len(partitions)]) for code in found]


def _bits(bits: bytes, count: int) -> Any:
    """A bitmap as an array of truths."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little").astype(bool)


def ends_of(first: int, count: int, outcomes: Iterable[Outcome], places: Any) -> Ends:
    """What outcomes, oldest first, say of a block whose messages begin at sequence number `first`."""
    last = np.zeros(count, np.uint8)
    tried = np.zeros(count, np.int32)
    attempts: Counter[tuple[int, int, int]] = Counter()
    seen = False
    for outcome in outcomes:
        base = sequence_of(outcome.first) - first
        for rows, status, number in _said(outcome, base):
            rows = rows[(rows >= 0) & (rows < count)]  # noqa: PLW2901 - of other blocks nothing is known
            seen = True
            # What goes back with no attempt more was given back unused, or waits for its time.
            real = rows if status != DELAYED else rows[tried[rows] < number]
            for place, n in zip(*np.unique(places[real], return_counts=True), strict=True):
                attempts[int(place), status, outcome.code] += int(n)
            last[rows] = NONE if status == DELAYED else status
            tried[rows] = number if status == DELAYED else 0
    return Ends(last.tobytes() if seen else b"", [(*key, n) for key, n in sorted(attempts.items())])


def _said(outcome: Outcome, base: int) -> Iterable[tuple[Any, int, int]]:
    """Which messages, what became of them, and at which attempt."""
    for bits, status in ((outcome.done, DONE), (outcome.expired, CANCELLED)):
        if bits:
            yield np.flatnonzero(_bits(bits, outcome.count)) + base, status, 0
    for deferral in outcome.deferred:
        begin = base + deferral.offset
        yield np.arange(begin, begin + deferral.count), DELAYED, deferral.attempts
    if outcome.dead:
        yield np.array([base + offset for offset, _, _ in outcome.dead]), DEAD, 0


def statuses(fold: BlockFold, group: GroupImage, now: int) -> tuple[Any, Any, int | None]:
    """By message its status for a group, since when it waits, and when the next that is delayed is due."""
    assert fold.labelled is not None, "it is not settled"
    first, count = fold.first, fold.count
    ends = fold.ends.get(group.number)
    said = np.frombuffer(ends.last, np.uint8) if ends and ends.last else np.zeros(count, np.uint8)
    since = fold.labelled.times(count).copy()
    numbers = np.arange(first, first + count)
    given = (numbers >= group.begin) & (not fold.is_lone)
    found = np.where(said == NONE, np.where(given, PASSED_CODE, NONE), said)
    # A death that is no letter any more was purged.
    found = np.where(said == DEAD, CANCELLED, found).astype(np.uint8)
    for sequence, _ in group.dead:
        if first <= sequence < fold.end:
            found[sequence - first] = DEAD
    due: list[int] = []
    if not fold.is_lone:
        position = group.lanes.get(fold.labelled.partition, group.position)
        ahead = numbers >= position
        late = ahead & (since > now)
        found[ahead] = READY
        found[late] = DELAYED
        due += [int(since[late].min())] if late.any() else []
    for run in group.runs:
        begin, end = max(run.first, first), min(run.end, fold.end)
        if begin >= end:
            continue
        cut, rows = slice(begin - run.first, end - run.first), slice(begin - first, end - first)
        left = ~_bits(run.done, run.count)[cut]
        out = _bits(run.handed, run.count)[cut]
        status = READY
        if not run.is_held and run.due_at > now:
            status = DELAYED
            due += [run.due_at] if left.any() else []
        found[rows] = np.where(left, np.where(out & run.is_held, LEASED, status), found[rows])
        if run.start_time > fold.labelled.appended_at:  # it came back: it waits since then
            since[rows] = np.where(left, run.start_time, since[rows])
    return found, since, min(due, default=None)


def count_up(fold: BlockFold, groups: Sequence[GroupImage], now: int) -> tuple[Counts, bool]:
    """What a block adds up to for all groups, and whether it is settled."""
    assert fold.labelled is not None, "it is not settled"
    counts, places = Counts(), fold.labelled.places(fold.count)
    table = fold.labelled.table
    least = np.full(fold.count, 255, np.uint8)
    waits = np.full(fold.count, np.iinfo(np.int64).max)
    dues: list[int] = []
    for group in groups:
        found, since, due = statuses(fold, group, now)
        dues += [] if due is None else [due]
        _count_group(counts, fold, group, found, since)
        seen = np.where(found == PASSED_CODE, DONE, found)
        least = np.minimum(least, np.where(seen == NONE, 255, seen))
        waits = np.minimum(waits, np.where(found == READY, since, waits))
    if not fold.is_lone:
        # A message that no group sees waits for one, if there is none; otherwise nobody is to have it.
        least[least == 255] = DONE if groups else READY  # noqa: PLR2004 - set above
        if not groups:
            waits = fold.labelled.times(fold.count)
        _count_events(counts, table, places, least, waits)
    counts.next_due = min(dues, default=None)
    return counts, bool(not np.isin(least, _OPEN).any() and groups)


def _count_events(counts: Counts, table: list[tuple[str, ...]], places: Any, found: Any, since: Any) -> None:
    for place, status, number, oldest in _tallied(places, found, since):
        values = [filled(table[place][_AT[label]], "") for label in ("project", "source")]
        key = (*values, STATUSES[status])
        counts.events[key] = counts.events.get(key, 0) + number
        if status == READY:
            age = (values[0], values[1])
            counts.event_ages[age] = min(counts.event_ages.get(age, oldest), oldest)


def _count_group(counts: Counts, fold: BlockFold, group: GroupImage, found: Any, since: Any) -> None:
    assert fold.labelled is not None, "it is not settled"
    places = fold.labelled.places(fold.count)
    rows = [
        dict(zip(LABELS, (filled(value, group.name) for value in values), strict=True))
        for values in fold.labelled.table
    ]
    number_text = str(group.number)
    for place, status, number, oldest in _tallied(places, found, since):
        if status == NONE:
            continue
        label = rows[place]
        shown = f"{PASSED}{group.number}" if status == PASSED_CODE else STATUSES[status]
        key = (
            label["project"], label["project_name"], label["endpoint"], shown, label["event_type"],
            label["source"], label["organisation_id"], label["organisation_name"],
        )  # fmt: skip
        counts.deliveries[key] = counts.deliveries.get(key, 0) + number
        if status in (*_OPEN, PASSED_CODE):
            book = (number_text, STATUSES[status])
            counts.books[book] = counts.books.get(book, 0) + number
        if status == READY:
            age = (label["project"], label["endpoint"], label["source"])
            counts.delivery_ages[age] = min(counts.delivery_ages.get(age, oldest), oldest)
    if letters := sum(fold.first <= sequence < fold.end for sequence, _ in group.dead):
        book = (number_text, "dead")
        counts.books[book] = counts.books.get(book, 0) + letters
    ends = fold.ends.get(group.number)
    for place, status, code, number in ends.attempts if ends else ():
        label = rows[place]
        tried = (label["project"], label["endpoint"], STATUSES[status], str(code) if code else "")
        counts.attempts[tried] = counts.attempts.get(tried, 0) + number


def _tallied(places: Any, found: Any, since: Any) -> Iterable[tuple[int, int, int, int]]:
    """By place in the table and status: how many, and the least time."""
    codes = places.astype(np.int64) * len(STATUSES) + found
    order = np.argsort(codes, kind="stable")
    keys, begins, numbers = np.unique(codes[order], return_index=True, return_counts=True)
    oldest: Any = np.minimum.reduceat(since[order], begins) if len(keys) else []
    for code, number, least in zip(keys, numbers, oldest, strict=True):
        yield int(code) // len(STATUSES), int(code) % len(STATUSES), int(number), int(least)
