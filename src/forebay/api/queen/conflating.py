"""Conflation: of what waits in a partition a group wants the newest message only.

The older ones are done in the moment in which a newer one is in hand, and not before; so a crash at any point
leaves the newest to be handed out, and whatever becomes of it, those that it replaces are over. Whether a
group is such a one is decided when it is made, and kept with where it began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from forebay.api.calls import Call
from forebay.api.queen.names import group_name
from forebay.api.queen.reading import Query
from forebay.log.values import Queue
from forebay.model import ForebayError, Rejected
from forebay.store.values import DEFAULT_GROUP, Task

AT_ONCE: Final = 5_000
"""Messages of a partition that are taken to find the newest."""
_TURNS: Final = 100
"""So often more of a partition is taken; then the newest so far will do, though others keep coming."""


def wanted(query: Query) -> bool:
    """Whether only the newest message of a partition is wanted."""
    if not query.flag("conflation"):
        return False
    if query.flag("autoAck"):
        text = "conflation can't go with autoAck: the newest message would be lost with its consumer"
        raise Rejected(text, hint="acknowledge what you get")
    if group_name(query.text("consumerGroup")) == DEFAULT_GROUP:
        raise Rejected("conflation needs a consumer group", hint="name one with consumerGroup")
    return True


def echo(asked: bool, effective: Collection[bool]) -> dict[str, Any]:  # noqa: FBT001 - it is what is asked for
    """What an answer says of it, given how the queues have it that were asked; also when nothing came."""
    applies = all(effective) if effective else asked
    answer: dict[str, Any] = {"conflation": True} if applies else {}
    if effective and applies != asked:
        answer["conflationConflict"] = True
    return answer


@dataclass(frozen=True, slots=True)
class Conflating:
    """Finds the newest messages for one pop."""

    call: Call
    group: str
    worker: str
    queues: Mapping[int, Queue]
    """Those in which the group wants the newest only, by number."""

    async def newest(self, tasks: Sequence[Task]) -> list[Task]:
        """Of tasks of these queues the newest of each partition, or an even newer one; others as they are.

        A partition that somebody else took meanwhile is left out: they have its newest message.
        """
        others = [task for task in tasks if task.queue_num not in self.queues]
        held = {task.id: task for task in newest_of(t for t in tasks if t.queue_num in self.queues)}
        if not held:
            return others
        try:
            await self._done([t for t in tasks if t.queue_num in self.queues and t.id not in held])
            ends = await self._ends(held.values())
            for task in list(held.values()):
                if ends.get((task.queue_num, task.partition), 0) > task.id:
                    await self._follow(task, held)
        except BaseException:
            with suppress(ForebayError):
                await self.call.desk.store.release([*held.values(), *others])
            raise
        return [*held.values(), *others]

    async def _ends(self, tasks: Iterable[Task]) -> dict[tuple[int, str], int]:
        """The newest message that is kept of each partition."""
        names: dict[int, list[str]] = {}
        for task in tasks:
            names.setdefault(task.queue_num, []).append(task.partition)
        ends = {}
        for number, mine in names.items():
            found = await self.call.desk.store.log.spans(self.queues[number], mine)
            ends.update({(number, span.partition): span.last for span in found.spans})
        return ends

    async def _follow(self, task: Task, held: dict[int, Task]) -> None:
        """Go on to the newest message of a partition that can be had now; `held` has what is out."""
        store, queue = self.call.desk.store, self.queues[task.queue_num]
        for _ in range(_TURNS):
            del held[task.id]
            await store.release([task])
            run = await store.get_task(
                queue.name, AT_ONCE, group=self.group, worker=self.worker, partition=task.partition
            )
            if not run:
                return
            before, task = task, run[-1]
            held[task.id] = task
            await self._done(run[:-1])
            if task.id == before.id:
                return  # what is newer waits for its time, or is over

    async def _done(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        await self.call.desk.store.done_task(tasks)
        self.call.context.counters.messages["done"] += len(tasks)
        self.call.desk.tally.settled([(task.queue_num, "done") for task in tasks])


def newest_of(tasks: Iterable[Task]) -> list[Task]:
    """The newest of each partition."""
    found: dict[tuple[int, str], Task] = {}
    for task in tasks:
        before = found.get((task.queue_num, task.partition))
        if before is None or before.id < task.id:
            found[task.queue_num, task.partition] = task
    return list(found.values())
