"""One task of a write: its rows are staged, page by page, while the next ones come.

Invariants: what is held is bounded by a page and two stagings, whatever the size of the task; nothing staged
here is seen by anybody before the driver publishes it; a task with rows that can't be messages counts all of
them and is refused, or hands them to the queue for bad rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from forebay.contract import Format
from forebay.log.values import Append, Queue
from forebay.model import Block, Limits, Rejected, UnknownQueue, check_queue_name
from forebay.spark.bad_rows import BadRowCount, Faults, side_messages
from forebay.spark.logs import Face
from forebay.spark.publishing import BadRows, patiently
from forebay.spark.rows import Page, blocks_of, fold_page, gather, page_of
from forebay.store.values import DEFAULT_GROUP

if TYPE_CHECKING:
    from forebay.spark.sink import Plan

STAGED_BYTES: Final = 8 << 20
"""What is staged at once; a larger block goes alone."""
SIDE_MESSAGES: Final = 8
"""Bad rows in a block: each may be as large as a message can be."""


class Staging:
    """What one task writes; `ids` of its blocks in order, `rows` and `bad` ones counted."""

    def __init__(self, face: Face, plan: Plan, stage: str, place: int) -> None:
        self.ids: list[bytes] = []
        self.rows = 0
        self.bad = BadRowCount(place)
        self._face = face
        self._options = plan.options
        self._format = None if plan.contract is None else Format(plan.contract, plan.contract_version)
        self._stage = stage
        self._place = place
        self._limits = Limits()
        self._queues: dict[str, Queue] = {}
        self._held: list[Append] = []
        self._held_bytes = 0
        self._under_way: Future[None] | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage all rows; what is staged is durable when this returns."""
        for name in filter(None, (self._options.queue, self._options.bad_rows)):
            self._known(name)
        for first, held in gather(batches):
            self._page(*page_of(first, held, self._options.queue, self._format))
        if self.bad.count and self._options.bad_rows is None:
            raise BadRows.of(self.bad.count, self.bad.named)
        self._flush()
        self._wait()

    def _page(self, page: Page, misfits: Faults) -> None:
        self._look_up(page)
        page, faults = fold_page(page, self._queues, self._limits, self._format)
        faults |= misfits
        if faults:
            self.bad.add(page.first, faults)
            self._set_aside(page, faults)
            page = page.without(faults)
        self.rows += len(page)
        if self.bad.count and self._options.bad_rows is None:
            return  # it is refused at its end: it goes on only to count
        for queue, block in blocks_of(page, self._options.queue, self._queues, self._limits):
            self._add(queue, block)

    def _set_aside(self, page: Page, faults: Faults) -> None:
        if self._options.bad_rows is None:
            return
        messages = list(side_messages(page, faults, self._place, self._limits))
        for at in range(0, len(messages), SIDE_MESSAGES):
            self._add(self._queues[self._options.bad_rows], Block.of(messages[at : at + SIDE_MESSAGES]))

    # Queues

    def _look_up(self, page: Page) -> None:
        """Learn of the queues that rows name; those that aren't there are the rows' faults."""
        column = page.get("queue")
        if column is None:
            return
        for name in column.unique().cast(pa.large_binary()).to_pylist():
            if name is not None and (text := name.decode(errors="replace")) not in self._queues:
                try:
                    self._known(check_queue_name(text))
                except Rejected:  # which UnknownQueue is, too
                    continue

    def _known(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._face(self._find(name))
        return self._queues[name]

    async def _find(self, name: str) -> Queue:
        log = self._face.log
        try:
            return await patiently(lambda: log.queue(name))
        except UnknownQueue as error:
            if not self._options.create_queues:
                hint = f"{error.hint}; or set the option createQueues" if error.hint else "create it"
                raise UnknownQueue(error.message, hint=hint) from error
        queue = await patiently(lambda: log.create_queue(name))
        await patiently(lambda: log.create_group(queue, DEFAULT_GROUP))
        return queue

    # Blocks

    def _add(self, queue: Queue, block: Block) -> None:
        append = Append.of(queue, block)
        if self._held_bytes + len(append.body) > STAGED_BYTES:
            self._flush()
        self.ids.append(block.id)
        self._held.append(append)
        self._held_bytes += len(append.body)

    def _flush(self) -> None:
        """Stage what is held, while the next rows are made to blocks."""
        self._wait()
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._under_way = self._face.begin(patiently(lambda: self._face.log.stage(self._stage, held)))

    def _wait(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            self._face.wait(under_way)
