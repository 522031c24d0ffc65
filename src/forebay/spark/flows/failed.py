"""Rows that fail in a flow which reads no queue: dead letters, of a queue that is the flow's own.

They are published together with what the rest of the batch became, as messages that say in their headers what
went wrong; then the flow's group gives them up. A crash in between leaves messages that the group has not
given up yet: that is done when the flow starts next. Who else reads the queue sees them like any others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.log.seam import Log
from forebay.log.values import Append, DeadLetter, Death, Group, Queue, StoredBlock, dead_letter_body
from forebay.model import Limits, Message, Rejected, pack, sequence_of
from forebay.model.limits import check_text
from forebay.spark.flows.halving import DeadRow
from forebay.spark.flows.keeping import STEP_BYTES
from forebay.spark.flows.rowwise import value_of
from forebay.spark.flows.values import FlowSpec
from forebay.spark.publishing import patiently

LABEL: Final = "failed_rows_of"
"""The label of such a queue, by which others know it: the type of the flow."""
ERROR: Final = "failed_error"
ATTEMPTS: Final = "failed_attempts"
_LIMITS: Final = Limits()
_STEP_MESSAGES: Final = 1_000


class FailedRows:
    """The queue of one flow for rows that fail; it is made when the first one does."""

    def __init__(self, log: Log, flow: FlowSpec) -> None:
        self._log = log
        self._flow = flow
        self.queue_name = flow.failed_queue

    async def stage(
        self, stage: str, dead: Sequence[DeadRow], rows: Sequence[Mapping[str, Any]]
    ) -> list[bytes]:
        """Stage the rows that fail; the ids of their blocks. Row number 1 is the first of `rows`."""
        if not dead:
            return []
        queue = await self._made()
        # One block each: the largest ones would not fit in one.
        # An action may have given a row another number: then all that is known of it is why it failed.
        known = dict(enumerate(rows, 1))
        appends = [Append.of(queue, [self._message(row, known.get(row.seq, {}))]) for row in dead]
        step: list[Append] = []
        for append in appends:
            if step and sum(len(each.body) for each in step) + len(append.body) > STEP_BYTES:
                await self._keep(stage, step)
                step = []
            step.append(append)
        await self._keep(stage, step)
        return [append.block.id for append in appends]

    async def _keep(self, stage: str, appends: Sequence[Append]) -> None:
        await patiently(lambda: self._log.stage(stage, appends))

    async def bury(self) -> int:
        """Give up what was published and isn't given up yet; how many there were."""
        known = await patiently(self._log.queues)
        queue = next((each for each in known if each.name == self.queue_name), None)
        return 0 if queue is None else await self._bury(queue, await self._group(queue))

    async def _bury(self, queue: Queue, group: Group) -> int:
        first, count = group.start, 0
        while blocks := await self._read(queue, first):
            letters = [letter for block in blocks for letter in self._letters(queue, block, first)]
            first = sequence_of(blocks[-1].last) + 1
            await self._tell(group, first, letters)
            count += len(letters)
        return count

    async def _read(self, queue: Queue, first: int) -> list[StoredBlock]:
        return await patiently(
            lambda: self._log.read(queue, first, messages=_STEP_MESSAGES, bytes=STEP_BYTES)
        )

    async def _tell(self, group: Group, to: int, letters: Sequence[DeadLetter]) -> None:
        await patiently(lambda: self._log.advance(group, to, dead=letters))

    async def _made(self) -> Queue:
        settings = {"labels": {LABEL: self._flow.type}}
        queue = await patiently(lambda: self._log.create_queue(self.queue_name, settings))
        await self._group(queue)
        return queue

    async def _group(self, queue: Queue) -> Group:
        return await patiently(lambda: self._log.create_group(queue, self._flow.name))

    def _letters(self, queue: Queue, block: StoredBlock, first: int) -> list[DeadLetter]:
        since = sequence_of(block.first)
        found = []
        for index, message in enumerate(block.decode(queue.name)):
            if since + index >= first:
                headers = message.headers or {}
                action, error = headers.get("action", ""), headers.get(ERROR, "nobody said why")
                attempts = headers.get(ATTEMPTS, "")
                reason = f"flow {self._flow.name}, action {action}: {error}"
                death = Death(0, reason, int(attempts) if attempts.isdecimal() else 0, message)
                message_id = pack(queue.number, since + index)
                found.append(DeadLetter(message_id, 0, reason, death.attempts, dead_letter_body(death)))
        return found

    def _message(self, dead: DeadRow, row: Mapping[str, Any]) -> Message:
        """A row as a message that says why it failed. What can't be in one, or is too long, is left out."""
        ours = {**self._flow.labels, "action": dead.action, ERROR: dead.error, ATTEMPTS: str(dead.attempts)}
        own = {name: value for name, value in (row.get("headers") or {}).items() if value is not None}
        fits = _size(own) + _size(ours) <= _LIMITS.headers_bytes_max
        payload = value_of(row.get("value")) or b""
        return Message(
            payload[: _LIMITS.message_bytes_max],
            partition=_allowed(row.get("partition") or "", _LIMITS.partition_bytes_max) or "",
            transaction_id=_allowed(row.get("key") or None, _LIMITS.transaction_id_bytes_max),
            headers={**own, **ours} if fits else ours,
        )


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def _allowed(text: str | None, bytes_max: int) -> str | None:
    try:
        return text and check_text(text, "text", bytes_max)
    except Rejected:
        return None
