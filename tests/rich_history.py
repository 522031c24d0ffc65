"""Random histories of queues for the rich series: everything that may happen to messages, one step at a time.

With it an oracle, which asks the log for one message after the other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Death, Deferral, Group, Position, Queue, Room, Start
from forebay.model import Message, bitmap, pack, sequence_of

SECOND = 1_000_000
CODES = (0, 200, 204, 404, 500, 503)
PARTITIONS = ("", "a", "b")


class History:
    """Takes steps that are drawn; `now` is the log's time."""

    def __init__(self, log: Log, rng: random.Random, now: Callable[[], int]) -> None:
        self._log = log
        self._rng = rng
        self._now = now
        self._claims: list[Claim] = []
        self._made = 0
        self._sought: set[int] = set()

    async def begin(self) -> None:
        """Make two queues, one of them ordered."""
        for name, ordered in (("shop.orders", False), ("shop.lanes", True)):
            queue = await self._log.create_queue(name, {"ordered": ordered, "keep_seconds": 60.0})
            await self._log.create_group(queue, "mail")

    async def steps(self, count: int) -> None:
        """Take so many steps."""
        kinds = [
            (self._push, 6), (self._claim, 6), (self._settle, 10), (self._mark, 3), (self._due, 4),
            (self._redrive, 2), (self._purge, 2), (self._restore, 1), (self._seek, 1), (self._advance, 1),
            (self._group, 1), (self._ungroup, 0.3), (self._queue, 0.5), (self._unqueue, 0.3),
            (self._trim, 1), (self._expire, 0.5), (self._reclaim, 1),
        ]  # fmt: skip
        for _ in range(count):
            step = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            await step()

    async def _any_queue(self) -> Queue | None:
        queues = await self._log.queues()
        return self._rng.choice(queues) if queues else None

    async def _any_group(self) -> Group | None:
        queue = await self._any_queue()
        groups = [] if queue is None else await self._log.groups(queue)
        return self._rng.choice(groups) if groups else None

    async def _push(self) -> None:
        queue = await self._any_queue()
        if queue is None:
            return
        partition = self._rng.choice(PARTITIONS)
        messages = [self._message(partition) for _ in range(self._rng.randint(1, 7))]
        await self._log.commit([Append.of(queue, messages)])

    def _message(self, partition: str) -> Message:
        headers = {
            name: self._rng.choice(values)
            for name, values in (
                ("source", ("web", "")), ("event_type", ("made", "paid")), ("project", ("p1", "p2"))
            )
            if self._rng.random() < 0.6
        }  # fmt: skip
        start = self._now() + self._rng.randint(-20, 60) * SECOND if self._rng.random() < 0.2 else None
        return Message(b"x", partition, None, headers or None, start)

    async def _claim(self) -> None:
        if (group := await self._any_group()) is not None:
            room = Room(self._rng.randint(1, 12))
            owner = self._rng.choice(("me", "you"))
            self._claims += (await self._log.claim(group, owner, room)).claims

    async def _due(self) -> None:
        if (group := await self._any_group()) is not None:
            self._claims += (await self._log.due(group, "me", Room(self._rng.randint(1, 12)))).claims

    async def _reclaim(self) -> None:
        if (group := await self._any_group()) is not None:
            owner = self._rng.choice(("me", "you"))
            self._claims += (await self._log.reclaim(group, "other", of=[owner])).claims

    async def _mark(self) -> None:
        if self._claims:
            claim = self._rng.choice(self._claims)
            bits = bitmap.of([i for i in range(claim.count) if self._rng.random() < 0.7], claim.count)
            await self._log.mark([claim.mark(handed=bits)])

    async def _settle(self) -> None:
        """Settle some of a claim; one that is no longer held is refused, and changes nothing."""
        if not self._claims:
            return
        claim = self._claims.pop(self._rng.randrange(len(self._claims)))
        left = [i for i in range(claim.count) if not bitmap.count(bitmap.overlap(claim.done, _bit(claim, i)))]
        if not left:
            return
        chosen = [i for i in left if self._rng.random() < 0.8] or left[:1]
        what = self._rng.choice(("done", "done", "deferred", "dead", "expired", "mixed"))
        done, expired, deferred, dead = [], [], [], []
        for offset in chosen:
            each = self._rng.choice(("done", "deferred", "dead")) if what == "mixed" else what
            if each == "done":
                done.append(offset)
            elif each == "expired":
                expired.append(offset)
            elif each == "deferred":
                due = self._now() + self._rng.randint(-5, 40) * SECOND
                attempts = claim.attempts + self._rng.choice((0, 1, 1))
                deferred.append(Deferral(offset, due, attempts))
            else:
                message = claim.block.decode().message(claim.first - claim.block.first + offset)
                dead.append(Death(offset, "broken", claim.attempts + 1, message))
        settlement = claim.settle(
            done=bitmap.of(done, claim.count),
            expired=bitmap.of(expired, claim.count),
            deferred=tuple(deferred),
            dead=tuple(dead),
            code=self._rng.choice(CODES),
        )
        await self._log.commit(settlements=[settlement])

    async def _letters(self, group: Group) -> list[int]:
        letters = [letter.message_id for letter in await self._log.dead_letters(group)]
        return [letter for letter in letters if self._rng.random() < 0.6]

    async def _redrive(self) -> None:
        if (group := await self._any_group()) is not None:
            await self._log.redrive(group, await self._letters(group))

    async def _purge(self) -> None:
        if (group := await self._any_group()) is not None:
            await self._log.purge(group, await self._letters(group))

    async def _restore(self) -> None:
        if (group := await self._any_group()) is not None and group.number not in self._sought:
            ids = [pack(group.queue, i) for i in range(1, 200)]
            await self._log.restore(group, ids)

    async def _seek(self) -> None:
        """Send a group elsewhere. Its letters go first: one that is handed out again is in two places."""
        if (group := await self._any_group()) is None:
            return
        for _ in range(2):
            await self._log.purge(
                group, [letter.message_id for letter in await self._log.dead_letters(group)]
            )
            progress = await self._log.progress(group)
            place = self._rng.randint(progress.floor, progress.next)
            await self._log.seek(group, Position(place))
        await self._log.purge(group, [letter.message_id for letter in await self._log.dead_letters(group)])
        self._sought.add(group.number)

    async def _advance(self) -> None:
        if (group := await self._any_group()) is not None:
            progress = await self._log.progress(group)
            await self._log.advance(group, self._rng.randint(progress.floor, progress.next))

    async def _group(self) -> None:
        queue = await self._any_queue()
        if queue is not None:
            self._made += 1
            start: Start = self._rng.choice(("earliest", "latest"))
            await self._log.create_group(queue, f"late{self._made % 3}", start)

    async def _ungroup(self) -> None:
        if (group := await self._any_group()) is not None:
            await self._log.delete_group(group)

    async def _queue(self) -> None:
        self._made += 1
        queue = await self._log.create_queue(f"more/{self._made % 2}", {"keep_seconds": 30.0})
        if self._rng.random() < 0.7:
            await self._log.create_group(queue, "mail")

    async def _unqueue(self) -> None:
        queue = await self._any_queue()
        if queue is not None and queue.name.startswith("more"):
            await self._log.delete_queue(queue.name)

    async def _trim(self) -> None:
        await self._log.trim()

    async def _expire(self) -> None:
        """Let retention drop also what a group still needs."""
        queue = await self._any_queue()
        if queue is not None:
            await self._log.configure_queue(queue.name, {"expire_seconds": 100.0})
            await self._log.trim()
            await self._log.configure_queue(queue.name, {"expire_seconds": None})


def _bit(claim: Claim, offset: int) -> bytes:
    return bitmap.of([offset], claim.count)


async def asked(log: Log) -> Counter[tuple[str, str, str]]:
    """By queue, group and status how many messages that are kept there are, asked one by one.

    A message that a group has come past without an outcome is left out.
    """
    found: Counter[tuple[str, str, str]] = Counter()
    for queue in await log.queues():
        stats = await log.stats(numbers=[queue.number])
        for sequence in range(1, stats.queues[0].floor):  # blocks that are gone, and what is left of them
            for group, status in (await _standings(log, pack(queue.number, sequence), 0)).items():
                if status in ("ready", "leased", "delayed", "dead"):
                    found[queue.name, group, status] += 1
        first = 1
        while page := await log.read(queue, first):
            for block in page:
                for i, message in enumerate(block.decode()):
                    start = max(block.accepted_at, message.start_time or 0)
                    for group, status in (await _standings(log, block.first + i, start)).items():
                        if status:
                            found[queue.name, group, status] += 1
            first = sequence_of(page[-1].last) + 1
    return found


async def _standings(log: Log, message_id: int, start: int) -> dict[str, str]:
    found = await log.find(message_id)
    statuses = {}
    for each in found.standings:
        claim = each.claim
        if claim is not None:
            waits = claim.owner is not None or claim.due_at <= found.at
            status = "leased" if claim.handed and claim.owner else "ready" if waits else "delayed"
        elif not each.claimed:
            status = "delayed" if start > found.at else "ready"
        elif each.letter is not None and each.letter.state == "dead":
            status = "dead"
        else:
            status = _ended(message_id, each.outcomes)
        statuses[each.group.name] = status
    return statuses


def _ended(message_id: int, outcomes: object) -> str:
    status = ""
    for outcome in outcomes:  # type: ignore[attr-defined]
        offset = message_id - outcome.first
        if offset in bitmap.indexes(outcome.done):
            status = "done"
        elif offset in bitmap.indexes(outcome.expired) or any(d[0] == offset for d in outcome.dead):
            status = "cancelled"
        else:
            status = ""
    return status
