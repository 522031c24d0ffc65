"""Batch: tasks that were taken together, under their leases, and what was said of them. A handler's storage.

Invariants: of each task one thing is said to the store, unless the store wasn't there to hear it; what is
lost is counted and noted, never raised; nothing is said once the batch is over. A store that is away is told
again, for as long as the leases hold: otherwise work that was done would be done again. What a handler sends
back for the last time is a dead letter. In an ordered queue what it sends back takes along what comes after
it in its partition: that is lost to the handler, and comes back uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from forebay.model import LeaseLost, Message, Rejected, Unavailable, from_datetime
from forebay.store.seam import Store
from forebay.store.values import Retry, StoreStats, Task
from forebay.work.context import Context
from forebay.work.outcomes import Outcomes, Rule, short
from forebay.work.values import RetryInfo

__all__ = ["Batch"]

_AGAIN_SECONDS: Final = 0.1
_AGAIN_SECONDS_MAX: Final = 2.0


class Batch:
    """See the module."""

    def __init__(self, store: Store, context: Context, tasks: Sequence[Task], rule: Rule) -> None:
        self._store = store
        self._rule = rule
        self._context = context
        self._open: dict[int, Task] = {task.id: task for task in tasks}
        self._telling = 0
        """Tasks of which the store is being told."""
        self._is_over = False
        self._held_up: set[int] = set()
        """Tasks that went back behind others of their partition."""
        self.done = 0
        self.retried = 0
        self.buried = 0
        self.lost = 0

    def __len__(self) -> int:
        """Tasks that are in hand."""
        return len(self._open) + self._telling

    @property
    def left(self) -> list[Task]:
        """Tasks of which nothing was said, and whose lease isn't known to be lost."""
        lost = self._context.lost
        return [task for task in self._open.values() if task.id not in lost]

    def close(self) -> None:
        """The handler has ended: what it left is the worker's."""
        self._is_over = True

    def lose(self, ids: set[int]) -> None:
        """Note and count tasks whose lease was lost."""
        self.lost += len(ids.difference(self._context.lost))
        self._context.lose(ids)

    # What a handler says

    async def done_task(self, task_ids: Iterable[int]) -> None:
        """Tasks are done."""
        await self.settle(Outcomes(done=list(task_ids)))

    async def retry_task(self, retries: Iterable[RetryInfo]) -> None:
        """Tasks come back, each at its time, and that counts as an attempt; after the last they are dead."""
        listed = list(retries)
        by_id = {retry.task_id: retry for retry in listed}
        if len(by_id) < len(listed):
            raise Rejected("a task is sent back twice", hint="name each once")
        outcomes = Outcomes()
        for id, retry in by_id.items():
            task, at = self._open.get(id), _micros(retry.next_start_time)
            if task is None:
                outcomes.retried[id] = (at, "")  # which is refused, with all others
            else:
                self._rule.send_back(outcomes, task, at, retry.reason)
        await self.settle(outcomes)

    async def bury_task(self, task_ids: Iterable[int], reason: str) -> None:
        """Tasks become dead letters."""
        await self.settle(Outcomes(buried={short(reason): list(task_ids)}))

    async def put_task(
        self,
        queue: str,
        data: bytes,
        *,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        partition: str = "",
        headers: dict[str, str] | None = None,
        transaction_id: str | None = None,
    ) -> int:
        """Put a task in a queue; its id, or 0 while it is in a spool."""
        task: bytes | Message = data
        if transaction_id is not None:
            task = Message(data, partition, transaction_id, headers or {})
        ids = await self._store.put_task(
            queue, task, partition=partition, headers=headers, start_time=start_time, delay=delay
        )
        return ids[0] if ids else 0

    async def get_stat(self) -> StoreStats:
        """Where the tasks of all queues are."""
        return await self._store.get_stat()

    async def settle(self, outcomes: Outcomes, *, is_last: bool = False) -> None:
        """Tell the store what became of tasks, in one write. `is_last`: by the worker, after the handler."""
        if self._is_over and not is_last:
            text = "the handler of these tasks has ended"
            raise Rejected(text, hint="settle tasks before it returns")
        outcomes = self._without_held_up(outcomes)
        behind = self._behind(outcomes)
        if behind:
            outcomes = outcomes.without(())
            outcomes.released += behind
        tasks = self._claim(outcomes.ids())
        if not tasks:
            return
        self._telling += len(tasks)
        try:
            lost = await self._tell(outcomes, tasks)
        except BaseException:
            self._open.update(tasks)  # nobody knows what the store has heard: it can be said again
            raise
        finally:
            self._telling -= len(tasks)
        self._held_up.update(behind)
        self._context.lose(behind)
        self._count(outcomes, lost)

    def _without_held_up(self, outcomes: Outcomes) -> Outcomes:
        """Leave out what went back already; that the handler worked it was in vain."""
        late = self._held_up.intersection(outcomes.ids()) if self._held_up else ()
        self.lost += len(late)
        return outcomes.without(late) if late else outcomes

    def _behind(self, outcomes: Outcomes) -> list[int]:
        """In an ordered queue: tasks of which nothing was said, and that come after others that go back."""
        first: dict[str, int] = {}
        for id in outcomes.back():
            task = self._open.get(id)
            if task is not None and task.lease.partition is not None:
                first[task.lease.partition] = min(id, first.get(task.lease.partition, id))
        if not first:
            return []
        said = set(outcomes.ids())
        return [
            id
            for id, task in self._open.items()
            if id not in said and task.lease.partition in first and id > first[task.lease.partition]
        ]

    def _claim(self, ids: Sequence[int]) -> dict[int, Task]:
        """Take tasks out of those of which nothing was said; Rejected, all or none."""
        if len(set(ids)) < len(ids):
            raise Rejected("a task is settled twice", hint="say once what became of it")
        stray = next((id for id in ids if id not in self._open), None)
        if stray is not None:
            if type(stray) is not int:
                text = f"a task is told by its id, and this is {type(stray).__name__}"
                raise Rejected(text, hint="give ids, such as task.id")
            text = f"task {stray} is none of this batch, or is settled already"
            raise Rejected(text, hint="say once of each task that the handler was given what became of it")
        if len(ids) == len(self._open):
            tasks, self._open = self._open, {}
            return tasks
        return {id: self._open.pop(id) for id in ids}

    def _count(self, outcomes: Outcomes, lost: set[int]) -> None:
        self.lose(lost)
        if not lost:
            self.done += len(outcomes.done)
            self.retried += len(outcomes.retried)
            self.buried += sum(map(len, outcomes.buried.values()))
            return
        self.done += len(set(outcomes.done) - lost)
        self.retried += len(outcomes.retried.keys() - lost)
        self.buried += sum(len(set(ids) - lost) for ids in outcomes.buried.values())

    # The store

    async def _tell(self, outcomes: Outcomes, tasks: dict[int, Task]) -> set[int]:
        """Settle; the ids of those whose lease was lost. Most often it is one write."""
        retries = [Retry(tasks[id], at, reason=said) for id, (at, said) in outcomes.retried.items()]
        retries += [Retry(tasks[id], at, counts=False) for id, at in outcomes.parked.items()]
        done, released = [tasks[id] for id in outcomes.done], [tasks[id] for id in outcomes.released]
        buried = [(reason, [tasks[id] for id in ids]) for reason, ids in outcomes.buried.items()]
        reason, first = buried.pop() if buried else ("", [])
        lost = await self._write(done=done, retry=retries, bury=first, release=released, reason=reason)
        for reason, more in buried:  # a server takes one reason at a time
            lost |= await self._write(done=[], retry=[], bury=more, release=[], reason=reason)
        return lost

    async def _write(
        self, *, done: list[Task], retry: list[Retry], bury: list[Task], release: list[Task], reason: str
    ) -> set[int]:
        pause = _AGAIN_SECONDS
        while True:
            try:
                await self._store.settle(done=done, retry=retry, bury=bury, release=release, reason=reason)
            except LeaseLost as error:
                return set(error.ids)
            except Unavailable:
                if self._context.remaining() < pause or self._context.is_cancelled:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _AGAIN_SECONDS_MAX)
            else:
                return set()


def _micros(moment: int | datetime) -> int:
    return from_datetime(moment) if isinstance(moment, datetime) else moment
