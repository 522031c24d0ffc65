"""A load that keeps its own books: pushers and workers that meet faults, and the check of what is left.

A pusher repeats a block with the same id until it is acknowledged, or gives it up: then it may be there
or not. A worker does the same with a settlement; whoever gives up goes on under a new name and takes over
from its old one. Unavailable is the only error that anybody may see.
"""

import asyncio
import random
from collections import Counter

from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Deferral, Group, Queue, Receipt, Room, Settlement
from forebay.model import Block, Message, Unavailable, bitmap, mint, sequence_of
from tests.conformance.steps import ALL, check_ledger, counts, texts


class Load:
    """Everything that pushers and workers were told, on one queue and one group."""

    def __init__(self, rng: random.Random, queue: Queue, group: Group, *, give_up: float = 0.0) -> None:
        self.rng = rng
        self.queue = queue
        self.group = group
        self.up = asyncio.Event()
        self.up.set()
        self.steps = 0
        self.failures = 0
        self._give_up = give_up
        self._pushing = 0
        self._sure: dict[str, int] = {}
        self._unsure: set[str] = set()
        self._done: Counter[str] = Counter()
        self._unsure_done: set[str] = set()
        self._lost_owners: list[str] = []
        self._moved = asyncio.Condition()

    async def run(self, logs: list[Log], *, pushers: int, blocks: int, workers: int) -> None:
        """Push so many blocks per pusher, and work until all are done."""
        self._pushing = pushers
        async with asyncio.TaskGroup() as tasks:
            for n in range(pushers):
                tasks.create_task(self._push(logs[n % len(logs)], f"p{n}", blocks))
            for n in range(workers):
                tasks.create_task(self._work(logs[n % len(logs)], f"w{n}"))

    async def reached(self, steps: int) -> None:
        """Wait until so much was acknowledged, or all is done."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.steps >= steps or self._finished())

    async def check(self, log: Log) -> None:
        """Nothing acknowledged is lost or doubled, and the books balance."""
        found: dict[str, int] = {}
        expected = 1
        while blocks := await log.read(self.queue, expected):
            for block in blocks:
                assert sequence_of(block.first) == expected, "a gap in the sequence numbers"
                for n, payload in enumerate(block.decode().payloads):
                    assert payload.decode() not in found, "a block is there twice"
                    found[payload.decode()] = block.first + n
                expected += block.count
        assert {text: found.get(text) for text in self._sure} == self._sure
        assert set(found) <= set(self._sure) | self._unsure
        for pusher in {text.split(":")[0] for text in found}:
            mine = [text for text in found if text.startswith(f"{pusher}:")]
            assert mine == sorted(mine), f"{pusher} is out of order"
        assert max(self._done.values(), default=1) == 1, "a message was done twice"
        assert set(found) - set(self._done) <= self._unsure_done
        stats = await counts(log, self.group)
        assert (stats.done, stats.ready, stats.held, stats.deferred) == (len(found), 0, 0, 0)
        await check_ledger(log)

    def _finished(self) -> bool:
        known = set(self._done) | self._unsure_done
        return self._pushing == 0 and set(self._sure) <= known

    async def _step(self) -> None:
        self.steps += 1
        async with self._moved:
            self._moved.notify_all()

    async def _commit(self, log: Log, appends: list[Append], settlements: list[Settlement]) -> Receipt | None:
        """Until it is acknowledged, or given up."""
        commit_id, atomic = mint(), self.rng.random() < 0.3
        while True:
            try:
                return await log.commit(appends, settlements, id=commit_id, atomic=atomic)
            except Unavailable:
                self.failures += 1
                if self.rng.random() < self._give_up:
                    return None
                await self.up.wait()

    async def _push(self, log: Log, name: str, blocks: int) -> None:
        for number in range(blocks):
            count = self.rng.choice((1, 1, 2, 5))
            names = [f"{name}:{number:04}:{n}" for n in range(count)]
            block = Block.of([Message(text.encode()) for text in names])
            receipt = await self._commit(log, [Append.of(self.queue, block)], [])
            if receipt is None:
                self._unsure.update(names)
            else:
                self._sure.update(zip(names, receipt.appended[0].ids(), strict=True))
            await self._step()
        self._pushing -= 1

    async def _work(self, log: Log, name: str) -> None:
        owner, turn = name, 0
        idle = 0
        while idle < 3:  # what was given up may be there too
            try:
                claims = await self._next(log, owner)
            except Unavailable:
                self.failures += 1
                self._lost_owners.append(owner)
                owner, turn = f"{name}-{turn}", turn + 1
                await self.up.wait()
                continue
            if claims and not await self._settle(log, claims):
                self._lost_owners.append(owner)
                owner, turn = f"{name}-{turn}", turn + 1
            idle = 0 if claims or not self._finished() else idle + 1

    async def _next(self, log: Log, owner: str) -> list[Claim]:
        room = Room(self.rng.choice((1, 3, 100)))
        lost = list(self._lost_owners)
        claims = list((await log.claim(self.group, owner, room)).claims)
        claims += (await log.due(self.group, owner, room)).claims
        if lost:
            claims += (await log.reclaim(self.group, owner, ALL, of=lost)).claims
        return claims

    async def _settle(self, log: Log, claims: list[Claim]) -> bool:
        """Settle all in one commit, in any order, some of them in part; whether it is known to be done."""
        self.rng.shuffle(claims)
        settlements, finished = [], []
        for claim in claims:
            done = set(bitmap.indexes(claim.done))
            left = [n for n in range(claim.count) if n not in done]
            cut = self.rng.randrange(len(left) + 1) if self.rng.random() < 0.3 else len(left)
            names = texts(claim)
            finished.append([names[n] for n in left[:cut]])
            deferred = tuple(Deferral(n, 1, 1) for n in left[cut:])
            bits = bitmap.of(left[:cut], claim.count) if cut else b""
            settlements.append(claim.settle(done=bits, deferred=deferred))
        receipt = await self._commit(log, [], settlements)
        if receipt is None:
            self._unsure_done.update(*finished)
            return False
        assert not receipt.conflicts
        for names in finished:
            self._done.update(names)
        await self._step()
        return True
