"""What is spooled, in the books: messages were accepted, and outcomes were answered.

Invariants: what is added on one side is added on the other, and what is moved stays in the sum, so books that
balance go on to balance, whatever was replayed between the look at the log and the look at the spool.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.store.values import DEFAULT_GROUP

_UNMADE: Final = 0
"""The number of what isn't in the log yet: no queue and no group has it."""


def with_spooled(stats: Stats, spooled: Mapping[str, int]) -> Stats:
    """The books of a log together with what waits for it, by queue; queues that aren't made yet come last."""
    waiting = {name: count for name, count in spooled.items() if count}
    if not waiting:
        return stats
    known = [_added(books, waiting.pop(books.queue.name, 0)) for books in stats.queues]
    return msgspec.structs.replace(stats, queues=[*known, *_unmade(waiting)])


def with_answered(stats: Stats, answered: Mapping[tuple[str, str], int]) -> Stats:
    """The books together with the tasks that were settled in the spool, by queue and group.

    The log counts them as held. Books of before they were taken count them as ready, or as deferred.
    """
    waiting = Counter(answered)
    if not +waiting:
        return stats
    queues = []
    for books in stats.queues:
        name = books.queue.name
        groups = [_moved(group, waiting[name, group.group.name]) for group in books.groups]
        queues.append(msgspec.structs.replace(books, groups=groups))
    return msgspec.structs.replace(stats, queues=queues)


def _moved(group: GroupStats, count: int) -> GroupStats:
    held = min(count, group.held)
    ready = min(count - held, group.ready)
    deferred = min(count - held - ready, group.deferred)
    return msgspec.structs.replace(
        group,
        held=group.held - held,
        handed=max(0, group.handed - held),
        ready=group.ready - ready,
        deferred=group.deferred - deferred,
        due=max(0, group.due - deferred),
        answered=held + ready + deferred,
    )


def _added(books: QueueStats, count: int) -> QueueStats:
    if not count:
        return books
    groups = [
        msgspec.structs.replace(group, accepted=group.accepted + count, spooled=group.spooled + count)
        for group in books.groups
    ]
    return msgspec.structs.replace(books, groups=groups, spooled=books.spooled + count)


def _unmade(waiting: Mapping[str, int]) -> Iterator[QueueStats]:
    """Queues as they will be: with a group for workers."""
    for name, count in sorted(waiting.items()):
        group = GroupStats(
            group=Group(_UNMADE, _UNMADE, DEFAULT_GROUP, 1),
            accepted=count, ready=0, held=0, deferred=0, done=0, dead=0, purged=0, expired=0, corrupt=0,
            handed=0, due=0, spooled=count,
        )  # fmt: skip
        queue = Queue(_UNMADE, name, QueueSettings(), 0)
        yield QueueStats(queue=queue, next=1, floor=1, groups=[group], spooled=count)
