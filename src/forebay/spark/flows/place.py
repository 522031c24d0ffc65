"""Where a flow is, as a record of the log says it: written in the transaction that publishes a batch.

The record is the truth; Spark's checkpoint and the group's cursor follow it. Pure.

| the group is at | what happened | what to do |
|---|---|---|
| the record's end | the last batch is done with | go on |
| where it was before the last batch, and not sent there since | a crash between publishing and saying so | bring the group to the end |
| where the record says that it is told next, sent there once | a crash between two steps of saying so | likewise |
| elsewhere, or sent there | somebody sent the group there | go on from there, with a checkpoint of its own |
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import Final

import msgspec

from forebay.log.values import Group

SPACE: Final = "flow"
"""Where the records of flows are."""
DEAD_SPACE: Final = "flow-dead"
"""Where rows are that were given up, until they are dead letters of their group."""
FILES_KEPT: Final = 16
"""Batches whose files a record names."""
LINE_CHARS: Final = 16
"""Of an id, the random part: names of files are long enough."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a flow that reads a queue says."""

    checkpoint: str
    """The name of Spark's notes that belong to it: others know nothing of this flow."""
    start: int
    """The sequence number of the first row of the last batch."""
    end: int
    """The one after its last row."""
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead: int = 0
    at: int = 0
    """When it was published, in microseconds."""
    group_start: int = 0
    group_sought: int = -1
    """Where the group was while the last batch was made, and how often it had been sent elsewhere by then."""
    told: int = 0
    """Up to where the group is told next, if not all at once: then the above is where it is before that."""
    line: str = ""
    """Where files are written: it changes when the group is sent elsewhere, so no row comes twice in one."""
    run: str = ""
    """Where files are written: who publishes next. Whoever else made files for it will not."""
    files: tuple[str, ...] = ()
    """Stems of the files of the last batches: of those rows, others don't count."""

    @property
    def stem(self) -> str:
        """What the names of files have of the batch that comes next."""
        return f"{self.end:019d}-{self.line}-{self.run}"

    def after(self, end: int, *, rows_out: int, dead: int, at: int, group: Group) -> Place:
        """The record of the batch that comes next, and ends there."""
        return msgspec.structs.replace(
            self,
            start=self.end,
            end=end,
            batches=self.batches + 1,
            rows_in=self.rows_in + end - self.end,
            rows_out=self.rows_out + rows_out,
            dead=self.dead + dead,
            at=at,
            group_start=group.start,
            group_sought=group.sought,
            told=0,
            files=(*self.files, self.stem)[-FILES_KEPT:] if self.run else (),
        )

    def counts(self, before: Place) -> bool:
        """Whether the files that came next for a place which this one follows were published, or may be."""
        return before.stem in self.files or self.batches - before.batches > FILES_KEPT

    def is_left_over(self, stem: str) -> bool:
        """Whether files are of a batch that was not published, or that somebody else published.

        Nothing is known of files of other lines, nor of those that are older than what is kept.
        """
        first, _, rest = stem.partition("-")
        if not self.line or stem in self.files or rest.partition("-")[0] != self.line:
            return False
        return first == f"{self.end:019d}" or first in {each.partition("-")[0] for each in self.files}

    def is_untold(self, group: Group) -> bool:
        """Whether a group wasn't told of the last batch, or of a part of it, and nobody sent it elsewhere."""
        if self.told and group.sought == self.group_sought + 1:
            return self.told <= group.start < self.end
        return (group.start, group.sought) == (self.group_start, self.group_sought)


def resume(known: Place | None, group: Group, checkpoint: str) -> Place:
    """Where a flow with this group goes on; `checkpoint` names fresh notes, if needed."""
    if known is not None and (group.start == known.end or known.is_untold(group)):
        return known
    known = known or Place(checkpoint=checkpoint, start=group.start, end=group.start)
    return msgspec.structs.replace(
        known, checkpoint=checkpoint, start=group.start, end=group.start, line=checkpoint[-LINE_CHARS:]
    )


def dead_key(flow: str, seq: int) -> str:
    """The key of a row that is given up: by flow, in the order of the queue."""
    return f"{flow}/{seq:019d}"
