"""Any log against the oracle: the same operations on both, the same answers after every step.

Both share a clock. Queue numbers and message ids come out equal; tokens and group numbers are each
log's own, so claims and groups are kept in pairs. Of an ordered queue a log may choose which partitions
it hands out first: the oracle is then asked for the same ones by name. It is long because every verb of
the seam has its rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import hypothesis
import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from forebay.log import flow_stretches
from forebay.log.values import (
    Append,
    Claim,
    Claimed,
    Death,
    Deferral,
    Found,
    Group,
    Mark,
    Outcome,
    Position,
    Receipt,
    Room,
    Settlement,
    Start,
)
from forebay.model import (
    Block,
    ForebayError,
    Message,
    bitmap,
    mint,
    pack,
    queue_of,
    sequence_of,
)
from tests.conformance.rigs import NAMES, MemoryRig, Rig, make_rig
from tests.conformance.steps import ALL, SECOND, check_ledger, texts

if TYPE_CHECKING:
    from forebay.log.seam import Log
    from forebay.log.values import Queue

T = TypeVar("T")

OWNERS = ("one", "two", "three")
PARTITIONS = ("", "p", "q")
KINDS = ("deferred", "done", "leave", "dead", "deferred", "leave", "expired")
MARKS = ("handed", "returned", "leave", "handed", "both")
FLOWS = (None, {"flow": "f"}, {"flow": "g", "action": "a"}, {"trace": "t"})
STEPS = 40
FOUND_MAX = 30

owners = st.sampled_from(OWNERS)
rooms = st.one_of(
    st.builds(Room, st.integers(1, 9)),
    st.builds(Room, st.integers(1, 30), st.integers(1, 400)),
    st.just(ALL),
)
picks = st.integers(0, 1_000)
transaction_ids = st.lists(st.sampled_from([None, None, None, "t1", "t2", "t3"]), min_size=1, max_size=6)
pushes = st.tuples(st.sampled_from(["plain", "lanes"]), st.sampled_from(PARTITIONS), transaction_ids)
waited = st.sampled_from([0, 1, 30, 59, 60, 61, 100, 200, -1_000])
waits = st.sampled_from([5, 0, 1, 60])
kinds_in_turn = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)
outcomes = st.tuples(picks, kinds_in_turn, waits)
marks = st.tuples(picks, st.lists(st.sampled_from(MARKS), min_size=1, max_size=4))
known = st.sampled_from([None, None, 1, 4, 12])
places = st.one_of(
    st.sampled_from(["earliest", "latest", -5, -60, 0]), st.builds(Position, st.integers(1, 40))
)


class Both(msgspec.Struct, frozen=True):
    """The oracle's and the subject's own of one thing."""

    oracle: Any
    subject: Any


class Written(msgspec.Struct, frozen=True):
    """A commit that may be repeated."""

    id: bytes
    appends: tuple[Append, ...]
    settlements: tuple[Both, ...]
    atomic: bool


class LogMachine(RuleBasedStateMachine):
    """Drives a rig and the oracle side by side."""

    rig: ClassVar[Rig]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.oracle_rig = MemoryRig()
        self.oracle_rig.clock = self.rig.clock
        self.run(self.rig.fresh())
        self.run(self.oracle_rig.open())
        self.queues: dict[str, Queue] = {}
        self.groups: list[Both] = []
        self.claims: list[Both] = []
        self.written: list[Written] = []
        self.pushed = 0
        self.block_ids: set[bytes] = set()
        self.buried: set[int] = set()
        self.is_sound = True

    # Both at once

    @property
    def oracle(self) -> Log:
        """The log that is right."""
        return self.oracle_rig.log

    @property
    def subject(self) -> Log:
        """The log under test."""
        return self.rig.log

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end; a failure spares the last act."""
        try:
            return self.runner.run(work)
        except BaseException:
            self.is_sound = False
            raise

    def agree(self, expected: object, found: object) -> None:
        """Compare; a difference spares the last act."""
        self.is_sound = self.is_sound and expected == found
        assert found == expected

    def pick_group(self, pick: int, having: str, *, ordered: bool | None = None) -> Both:
        """One of the groups, if possible one that has some messages ready, held or deferred."""
        found = [b for b in self.groups if ordered is None or self.is_ordered(b) == ordered]
        stats = [s for queue in self.run(self.oracle.stats()).queues for s in queue.groups]
        some = {s.group.number for s in stats if getattr(s, having)}
        found = [b for b in found if b.oracle.number in some] or found
        return found[pick % len(found)]

    def is_ordered(self, group: Both) -> bool:
        """Whether a group is one of the ordered queue."""
        return bool(group.oracle.queue == self.queues["lanes"].number)

    def keep(self, expected: Claimed, found: Claimed) -> None:
        """Compare what was handed out, and keep it in pairs."""
        self.agree(
            [shown(c, self.block_ids) for c in expected.claims],
            [shown(c, self.block_ids) for c in found.claims],
        )
        self.agree(
            [(e.queue, e.first, e.last) for e in expected.corrupt],
            [(e.queue, e.first, e.last) for e in found.corrupt],
        )
        self.agree(expected.next_due_at, found.next_due_at)
        self.claims += [Both(*pair) for pair in zip(expected.claims, found.claims, strict=True)]

    # Queues and groups

    @initialize(some=st.lists(pushes, min_size=2, max_size=6))
    def begin(self, some: list[tuple[str, str, list[str | None]]]) -> None:
        for name, ordered in (("plain", False), ("lanes", True)):
            chosen = {"ordered": ordered, "dedupe_seconds": 60.0, "keep_seconds": 1e6}
            expected = self.run(self.oracle.create_queue(name, chosen))
            self.agree(expected, self.run(self.subject.create_queue(name, chosen)))
            self.queues[name] = expected
            self.make_group(name, "first", "earliest")
        for push in some:
            self.push(push)

    def make_group(self, queue: str, name: str, start: Start) -> None:
        """Make a group in both."""
        expected = self.run(self.oracle.create_group(self.queues[queue], name, start))
        found = self.run(self.subject.create_group(self.queues[queue], name, start))
        self.agree((expected.queue, expected.start), (found.queue, found.start))
        self.groups.append(Both(expected, found))

    @precondition(lambda self: len(self.groups) < 4)
    @rule(queue=st.sampled_from(["plain", "lanes"]), start=st.sampled_from(["latest", -5, 0]))
    def create_group(self, queue: str, start: Any) -> None:
        at: Start = start if start == "latest" else self.rig.clock.now() + start * SECOND
        self.make_group(queue, f"group-{len(self.groups)}", at)

    # The one write

    @rule(push=pushes)
    def push(self, push: tuple[str, str, list[str | None]]) -> None:
        self.write(Written(mint(), (self.append_of(*push),), (), atomic=False))

    @precondition(lambda self: self.claims)
    @rule(outcome=outcomes)
    def settle(self, outcome: tuple[int, list[str], int]) -> None:
        self.write(Written(mint(), (), self.settlements_of([outcome]), atomic=False))

    @precondition(lambda self: self.claims)
    @rule(picked=st.lists(picks, min_size=1, max_size=4))
    def finish(self, picked: list[int]) -> None:
        settlements = self.settlements_of([(pick, ["done"], 0) for pick in picked])
        self.write(Written(mint(), (), settlements, atomic=False))

    @rule(
        some=st.lists(pushes, max_size=5),
        again=st.lists(picks, max_size=1),
        told=st.lists(outcomes, max_size=3),
        atomic=st.booleans(),
    )
    def commit(
        self,
        some: list[tuple[str, str, list[str | None]]],
        again: list[int],
        told: list[tuple[int, list[str], int]],
        *,
        atomic: bool,
    ) -> None:
        appends = [self.append_of(*push) for push in some]
        known = [append for written in self.written for append in written.appends]
        appends += [known[pick % len(known)] for pick in again if known]
        settlements = self.settlements_of(told if self.claims else [])
        self.write(Written(mint(), tuple(appends), settlements, atomic))

    @rule(
        some=st.lists(st.tuples(pushes, waited), min_size=1, max_size=6),
        seconds=st.sampled_from([0, 0, 30, 60]),
        atomic=st.booleans(),
    )
    def replay(
        self, some: list[tuple[tuple[str, str, list[str | None]], int]], seconds: int, *, atomic: bool
    ) -> None:
        """Commit what was accepted some time ago, in another order perhaps."""
        self.rig.clock.advance(seconds=seconds)
        appends = [self.append_of(*push, seconds_ago=ago) for push, ago in some]
        self.write(Written(mint(), tuple(appends), (), atomic))

    @precondition(lambda self: self.written)
    @rule(pick=picks)
    def commit_again(self, pick: int) -> None:
        self.write(self.written[pick % len(self.written)])

    @precondition(lambda self: self.written)
    @rule(pick=picks, push=pushes)
    def use_a_block_id_again(self, pick: int, push: tuple[str, str, list[str | None]]) -> None:
        used = [append.block.id for written in self.written for append in written.appends]
        if used:
            append = self.append_of(*push, block_id=used[pick % len(used)])
            self.write(Written(mint(), (append,), (), atomic=False), keep=False)

    def append_of(
        self,
        queue: str,
        partition: str,
        ids: Sequence[str | None],
        block_id: bytes | None = None,
        *,
        seconds_ago: int | None = None,
    ) -> Append:
        """A block that was never written, and perhaps waited in a spool."""
        messages = []
        for transaction_id in ids:
            self.pushed += 1
            headers = FLOWS[self.pushed // 2 % len(FLOWS)]
            messages.append(Message(str(self.pushed).encode(), partition, transaction_id, headers))
        created_at = self.rig.clock.now() - (seconds_ago or 0) * SECOND
        block = Block.of(messages, id=block_id or mint(), created_at=created_at)
        self.block_ids.add(block.id)
        return Append.of(self.queues[queue], block, replayed=seconds_ago is not None)

    def settlements_of(self, said: Iterable[tuple[int, list[str], int]]) -> tuple[Both, ...]:
        """What happened to some of the latest claims, which may be gone, if anything did."""
        settlements = []
        for pick, kinds, seconds in said:
            both = self.latest_claim(pick)
            due_at = self.rig.clock.now() + seconds * SECOND
            settlements.append(Both(told(both.oracle, kinds, due_at), told(both.subject, kinds, due_at)))
        return tuple(both for both in settlements if any(both.oracle.finished()))

    def latest_claim(self, pick: int) -> Both:
        """One of the latest claims, which may be gone."""
        return self.claims[-1 - pick % min(len(self.claims), 8)]

    def write(self, written: Written, *, keep: bool = True) -> None:
        """Commit to both, and compare the answers or the errors."""

        async def commit(log: Log, settlements: list[Settlement]) -> object:
            try:
                receipt = await log.commit(written.appends, settlements, id=written.id, atomic=written.atomic)
            except ForebayError as error:
                return type(error)
            check_order(written.appends, receipt)
            return answer(receipt)

        expected = self.run(commit(self.oracle, [both.oracle for both in written.settlements]))
        found = self.run(commit(self.subject, [both.subject for both in written.settlements]))
        self.agree(expected, found)
        if keep and written not in self.written:
            self.written.append(written)

    # Handing out

    @rule(pick=picks, owner=owners, room=rooms, known=known)
    def claim(self, pick: int, owner: str, room: Room, known: int | None) -> None:
        both = self.pick_group(pick, "ready")
        known = None if known is None else pack(both.oracle.queue, known)
        if self.is_ordered(both):
            self.claim_ordered(both, owner, room, known)
        else:
            expected = self.run(self.oracle.claim(both.oracle, owner, room, known=known))
            self.keep(expected, self.run(self.subject.claim(both.subject, owner, room, known=known)))

    def claim_ordered(self, both: Both, owner: str, room: Room, known: int | None) -> None:
        """Claim, and ask the oracle for the same partitions."""
        found = self.run(self.subject.claim(both.subject, owner, room, known=known))
        assert sum(claim.count for claim in found.claims) <= room.messages
        expected: list[Claim] = []
        for partition in dict.fromkeys(claim.block.partition for claim in found.claims):
            of_it = [claim for claim in found.claims if claim.block.partition == partition]
            same = Room(sum(claim.count for claim in of_it))
            asked = self.oracle.claim(both.oracle, owner, same, partition=partition, known=known)
            expected += self.run(asked).claims
        if not found.claims:
            expected += self.run(self.oracle.claim(both.oracle, owner, ALL)).claims
        self.keep(Claimed(expected, ()), found)

    @rule(pick=picks, owner=owners, room=rooms, partition=st.sampled_from(PARTITIONS))
    def claim_partition(self, pick: int, owner: str, room: Room, partition: str) -> None:
        both = self.pick_group(pick, "ready", ordered=True)
        expected = self.run(self.oracle.claim(both.oracle, owner, room, partition=partition))
        self.keep(expected, self.run(self.subject.claim(both.subject, owner, room, partition=partition)))

    @rule(
        pick=picks,
        owner=owners,
        room=rooms,
        kinds=kinds_in_turn,
        seconds=waits,
    )
    def work(self, pick: int, owner: str, room: Room, kinds: list[str], seconds: int) -> None:
        """Claim, and settle all that came."""
        before = len(self.claims)
        self.claim(pick, owner, room, None)
        self.settle_from(before, kinds, seconds)

    @rule(
        pick=picks,
        owner=owners,
        room=rooms,
        kinds=kinds_in_turn,
        seconds=waits,
    )
    def due(self, pick: int, owner: str, room: Room, kinds: list[str], seconds: int) -> None:
        """Wait, take what is due, and settle it."""
        both = self.pick_group(pick, "deferred")
        before = len(self.claims)
        self.rig.clock.advance(seconds=seconds)
        expected = self.run(self.oracle.due(both.oracle, owner, room))
        self.keep(expected, self.run(self.subject.due(both.subject, owner, room)))
        if len(kinds) > 1:
            self.settle_from(before, kinds, seconds)

    @rule(pick=picks, owner=owners, room=rooms, partition=st.sampled_from(PARTITIONS), seconds=waits)
    def due_partition(self, pick: int, owner: str, room: Room, partition: str, seconds: int) -> None:
        """Wait, and take what is due of one partition."""
        both = self.pick_group(pick, "deferred", ordered=True)
        self.rig.clock.advance(seconds=seconds)
        expected = self.run(self.oracle.due(both.oracle, owner, room, partition=partition))
        self.keep(expected, self.run(self.subject.due(both.subject, owner, room, partition=partition)))

    def settle_from(self, before: int, kinds: list[str], seconds: int) -> None:
        """Settle the claims that came last."""
        latest = range(len(self.claims) - before)
        settlements = self.settlements_of((pick, kinds, seconds) for pick in latest)
        self.write(Written(mint(), (), settlements, atomic=False))

    @precondition(lambda self: self.claims)
    @rule(said=st.lists(marks, min_size=1, max_size=4))
    def mark(self, said: list[tuple[int, list[str]]]) -> None:
        both = [(self.latest_claim(pick), kinds) for pick, kinds in said]
        expected = self.run(self.oracle.mark([marked(b.oracle, kinds) for b, kinds in both]))
        found = self.run(self.subject.mark([marked(b.subject, kinds) for b, kinds in both]))
        self.agree(list(expected), list(found))

    @rule(
        pick=picks,
        owner=owners,
        room=rooms,
        of=st.lists(owners, max_size=2),
        seconds=st.sampled_from([30.0, 29.999999, 0.0]),
    )
    def reclaim(self, pick: int, owner: str, room: Room, of: list[str], seconds: float) -> None:
        """Wait, and take over from the owners named and from the silent ones."""
        both = self.pick_group(pick, "held")
        self.rig.clock.advance(seconds=seconds)

        def asked(log: Log, group: Group) -> Coroutine[Any, Any, Claimed]:
            return log.reclaim(group, owner, room, of=of, silent_seconds=30.0)

        expected = self.run(asked(self.oracle, both.oracle))
        self.keep(expected, self.run(asked(self.subject, both.subject)))

    @rule(owner=owners, seconds=st.sampled_from([0, 0.000001, 0.5, 30]))
    def heartbeat(self, owner: str, seconds: float) -> None:
        self.rig.clock.advance(seconds=seconds)
        self.run(self.oracle.heartbeat(owner))
        self.run(self.subject.heartbeat(owner))

    @rule(owner=owners)
    def retire(self, owner: str) -> None:
        self.agree(self.run(self.oracle.retire(owner)), self.run(self.subject.retire(owner)))

    @rule(pick=picks, owner=owners, partition=st.sampled_from(PARTITIONS), held=st.booleans())
    def seize_partition(self, pick: int, owner: str, partition: str, *, held: bool) -> None:
        both = self.pick_group(pick, "held" if held else "deferred", ordered=True)
        self.agree(
            self.run(self.oracle.seize(both.oracle, owner, partition=partition, held=held)),
            self.run(self.subject.seize(both.subject, owner, partition=partition, held=held)),
        )

    @precondition(lambda self: self.claims)
    @rule(picked=st.lists(picks, min_size=1, max_size=3), owner=owners, held=st.booleans())
    def seize(self, picked: list[int], owner: str, *, held: bool) -> None:
        """Give away what holds messages of the latest claims, and have it taken over."""
        claims = [self.latest_claim(pick) for pick in picked]
        group = next((g for g in self.groups if g.oracle.number == claims[0].oracle.group), None)
        if group is None:
            return
        ids = [
            both.oracle.first + pick % both.oracle.count for both, pick in zip(claims, picked, strict=True)
        ]

        async def asked(log: Log, group: Group) -> tuple[int, Claimed]:
            count = await log.seize(group, owner, ids=ids, held=held)
            return count, await log.reclaim(group, owner, ALL, of=[owner])

        expected, found = (
            self.run(asked(self.oracle, group.oracle)), self.run(asked(self.subject, group.subject)),
        )  # fmt: skip
        self.agree(expected[0], found[0])
        self.keep(expected[1], found[1])

    @rule(pick=picks, start=places, dry_run=st.booleans())
    def seek(self, pick: int, start: Any, *, dry_run: bool) -> None:
        """Go on from another place, which may be past the end."""
        both = self.pick_group(pick, "held")
        if type(start) is int:
            start = max(0, self.rig.clock.now() + start * SECOND)

        async def asked(log: Log, group: Group) -> object:
            try:
                found = await log.seek(group, start, dry_run=dry_run)
            except ForebayError as error:
                return type(error)
            return found.group.start, found.group.sought, found.skipped, found.again, found.returned

        expected = self.run(asked(self.oracle, both.oracle))
        self.agree(expected, self.run(asked(self.subject, both.subject)))

    @rule(pick=picks, to=st.integers(1, 40))
    def advance(self, pick: int, to: int) -> None:
        """Be done with what lies before a place, which may be past the end."""
        both = self.pick_group(pick, "held")

        async def asked(log: Log, group: Group) -> object:
            try:
                return await log.advance(group, to)
            except ForebayError as error:
                return type(error)

        expected = self.run(asked(self.oracle, both.oracle))
        self.agree(expected, self.run(asked(self.subject, both.subject)))

    @precondition(lambda self: self.claims)
    @rule(picked=st.lists(picks, min_size=1, max_size=4))
    def recall(self, picked: list[int]) -> None:
        """Ask for some of the latest claims, which may be gone."""
        asked_for = [self.latest_claim(pick) for pick in picked]
        group = next(g for g in self.groups if g.oracle.number == asked_for[0].oracle.group)

        async def asked(log: Log, group: Group, claims: list[Claim]) -> object:
            try:
                found = await log.recall(group, [claim.token for claim in claims])
            except ForebayError as error:
                return type(error)
            assert {claim.token for claim in found} <= {claim.token for claim in claims}
            return [shown(claim, self.block_ids) for claim in found]

        expected = self.run(asked(self.oracle, group.oracle, [both.oracle for both in asked_for]))
        found = self.run(asked(self.subject, group.subject, [both.subject for both in asked_for]))
        self.agree(expected, found)

    # Dead letters and flows

    @rule(
        pick=picks,
        verb=st.sampled_from(["redrive", "redrive", "purge", "restore"]),
        picked=st.lists(picks, min_size=1, max_size=5),
    )
    def change_letters(self, pick: int, verb: str, picked: list[int]) -> None:
        """Redrive, purge or restore some of all that ever died, which may be in another state by now."""
        both = self.pick_group(pick, "deferred" if verb == "restore" and pick % 2 else "dead")
        self.buried |= {d.message_id for d in self.run(self.oracle.dead_letters(both.oracle))}
        buried = sorted(i for i in self.buried if queue_of(i) == both.oracle.queue) or [1]
        ids = [buried[n % len(buried)] for n in picked]

        def asked(log: Log, group: Group) -> Coroutine[Any, Any, list[int]]:
            verbs = {"redrive": log.redrive, "purge": log.purge, "restore": log.restore}
            return verbs[verb](group, ids)

        expected = self.run(asked(self.oracle, both.oracle))
        self.agree(expected, self.run(asked(self.subject, both.subject)))

    @rule(pick=picks, besides=st.none() | st.lists(owners, max_size=2, unique=True))
    def flows(self, pick: int, besides: list[str] | None) -> None:
        both = self.pick_group(pick, "ready")
        every = self.run(self.oracle.flows(both.oracle, besides=besides))
        self.agree(every, self.run(self.subject.flows(both.subject, besides=besides)))
        expected = [count for count in every if not count.is_held]
        stats = [s for queue in self.run(self.subject.stats()).queues for s in queue.groups]
        found = next(s for s in stats if s.group.number == both.subject.number)
        # What is due of a block that is dropped is in the books until somebody asks for it.
        assert found.ready <= sum(count.count for count in expected) <= found.ready + found.due
        if besides == []:
            waiting = sum(count.count for count in every if count.is_held)
            assert waiting <= found.held - found.handed, "what is of a dropped block isn't counted"

    # What happens by itself

    @rule()
    def pause(self) -> None:
        """Trim, where nothing may go, and open the log again."""
        self.run(self.oracle.trim())
        assert self.run(self.subject.trim()).blocks == 0
        if self.rig.name != "memory":
            self.run(self.rig.reopen())

    @rule(sequence=st.integers(1, 40))
    def damage(self, sequence: int) -> None:
        """Flip a bit in both, or flip it back."""
        queue = self.queues["plain"]
        blocks = self.run(self.oracle.read(queue, sequence, messages=1))
        if blocks:
            self.run(self.oracle_rig.flip_bit(queue, sequence_of(blocks[0].first)))
            self.run(self.rig.flip_bit(queue, sequence_of(blocks[0].first)))

    # After every step

    @invariant()
    def counts_agree(self) -> None:
        if not self.queues:
            return
        expected, found = self.run(self.oracle.stats()), self.run(self.subject.stats())
        self.agree(expected.at, found.at)
        self.agree(self.run(self.oracle.owners()), self.run(self.subject.owners()))
        for one, other in zip(expected.queues, found.queues, strict=True):
            self.agree((one.queue, one.next, one.floor), (other.queue, other.next, other.floor))
            for group, same in zip(one.groups, other.groups, strict=True):
                assert group.difference == 0
                self.agree(group, msgspec.structs.replace(same, group=group.group))

    def teardown(self) -> None:
        if self.is_sound and self.queues:
            self.compare_what_is_kept()
            self.hand_out_the_rest()
        self.run(self.oracle_rig.close())
        self.run(self.rig.close())

    def compare_what_is_kept(self) -> None:
        """Blocks, quarantine, dead letters and outcomes."""
        for queue in self.queues.values():
            blocks = self.run(self.oracle.read(queue))
            self.agree(blocks, self.run(self.subject.read(queue)))
            self.agree(
                self.run(self.oracle.quarantined(queue)),
                self.run(self.subject.quarantined(queue)),
            )
            for sequence in range(1, FOUND_MAX):
                message_id = pack(queue.number, sequence)
                found = [self.run(log.find(message_id)) for log in (self.oracle, self.subject)]
                self.agree(*map(alike, found))
        for both in self.groups:
            letters = [
                [
                    (d.message_id, d.died_at, d.reason, d.attempts, d.message())
                    for d in self.run(log.dead_letters(group, limit=1_000))
                ]
                for log, group in ((self.oracle, both.oracle), (self.subject, both.subject))
            ]
            self.agree(*letters)
            first = pack(both.oracle.queue, 1)
            self.agree(
                in_time(self.run(self.oracle.outcomes(both.oracle, first))),
                in_time(self.run(self.subject.outcomes(both.subject, first))),
            )

    def hand_out_the_rest(self) -> None:
        """Every message that is not finished comes once more, and then nothing does."""
        for owner in OWNERS:
            self.retire(owner)
        self.rig.clock.advance(seconds=3600)
        for both in self.groups:
            for group in (both.oracle, both.subject):
                log = self.oracle if group is both.oracle else self.subject
                self.run(finish_all(log, group))
            stats = self.run(self.subject.stats())
            left = [
                (s.ready, s.held, s.deferred)
                for queue in stats.queues
                for s in queue.groups
                if s.group.number == both.subject.number
            ]
            self.agree([(0, 0, 0)], left)
        self.counts_agree()
        self.run(check_ledger(self.subject))


def check_order(appends: Sequence[Append], receipt: Receipt) -> None:
    """Of one commit, the new blocks of a partition have their places in the order in which they were given.

    Not the oracle's business: it writes by the same rules, and would be as wrong.
    """
    firsts: dict[tuple[int, str], list[int]] = {}
    for append, appended in zip(appends, receipt.appended, strict=True):
        if appended.count and not appended.known:
            firsts.setdefault((append.queue, append.block.partition(0)), []).append(appended.first)
    assert all(found == sorted(found) for found in firsts.values()), firsts


async def finish_all(log: Log, group: Group) -> None:
    """Take and finish until nothing comes."""
    for _ in range(200):
        taken = [await log.due(group, "last", ALL), await log.claim(group, "last", ALL)]
        claims = [claim for claimed in taken for claim in claimed.claims]
        if not claims and not any(claimed.corrupt for claimed in taken):
            return
        if claims:
            receipt = await log.commit(settlements=[claim.settle_all() for claim in claims])
            receipt.raise_for_conflicts()
    raise AssertionError("it never ends")


def shown(claim: Claim, block_ids: set[bytes]) -> tuple[object, ...]:
    """What two logs must agree on; marks of finished messages mean nothing.

    The copy that a dead letter keeps is a block whose id is each log's own.
    """
    block_id = claim.block.id if claim.block.id in block_ids else None
    return (
        claim.first,
        claim.count,
        bitmap.indexes(claim.done),
        bitmap.indexes(bitmap.minus(claim.handed, claim.done)),
        claim.attempts,
        claim.start_time,
        claim.prev_start_time,
        (claim.block.first, claim.block.count, block_id, claim.block.appended_at),
        claim.block.partition,
        texts(claim) if claim.block.body else None,
    )


def alike(found: Found) -> tuple[Any, ...]:
    """What every log says alike of a message; outcomes of a block that was dropped may be kept or not."""
    groups = []
    for stands in found.standings:
        letter = stands.letter
        groups.append((
            stands.group.name, stands.claimed, stands.claim, stands.corrupt,
            letter and (letter.state, letter.changed_at, letter.letter.died_at, letter.letter.message()),
            in_time(stands.outcomes) if found.block else None,
        ))  # fmt: skip
    return found.queue, found.next, found.block, groups


def in_time(entries: Sequence[Outcome]) -> list[Outcome]:
    """Entries of the outcome log, oldest first; those of one moment in an order of our own."""
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    return sorted(entries, key=lambda entry: (entry.at, repr(entry)))


def answer(receipt: Receipt) -> object:
    """What a commit was answered."""
    appended = [(a.ids(), a.count, dict(a.duplicates), a.known) for a in receipt.appended]
    return appended, list(receipt.conflicts)


def told(claim: Claim, kinds: Sequence[str], due_at: int) -> Settlement:
    """A settlement of what is not finished as far as the claim knows, by kinds that go round."""
    finished = set(bitmap.indexes(claim.done))
    kind = {
        i: kinds[i % len(kinds)]
        for i in range(claim.count)
        if i not in finished
    }  # fmt: skip

    def bits(name: str) -> bytes:
        return bitmap.of([i for i, k in kind.items() if k == name], claim.count)

    message = Message(b"dead", "p", "t", {"h": "v"}, 5)
    return claim.settle(
        done=bits("done"),
        expired=bits("expired"),
        deferred=tuple(deferrals(kind, due_at, claim)),
        dead=tuple(
            Death(i, f"because {i}", claim.attempts + 1, message) for i, k in kind.items() if k == "dead"
        ),
        worker="machine",
    )


def marked(claim: Claim, kinds: Sequence[str]) -> Mark:
    """A mark on a claim, by kinds that go round."""
    out = [i for i in range(claim.count) if kinds[i % len(kinds)] in {"handed", "both"}]
    back = [i for i in range(claim.count) if kinds[i % len(kinds)] in {"returned", "both"}]
    return claim.mark(handed=bitmap.of(out, claim.count), returned=bitmap.of(back, claim.count))


def deferrals(kind: dict[int, str], due_at: int, claim: Claim) -> list[Deferral]:
    """The deferred messages as runs."""
    runs: list[Deferral] = []
    for i in (i for i, k in kind.items() if k == "deferred"):
        if runs and runs[-1].offset + runs[-1].count == i:
            longer = runs[-1].count + 1
            runs[-1] = msgspec.structs.replace(runs[-1], count=longer)
        else:
            runs.append(Deferral(i, due_at, claim.attempts + 1, claim.start_time))
    return runs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_a_log_behaves_like_the_oracle(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_stretches, "PAGE_BLOCKS", 3)  # so that short backlogs are remembered too
    monkeypatch.setattr(flow_stretches, "STRETCH_BLOCKS", 2)
    rig = make_rig(name, tmp_path, request.getfixturevalue)
    with asyncio.Runner() as runner:
        machine = type("Machine", (LogMachine,), {"rig": rig, "runner": runner})
        run_state_machine_as_test(
            hypothesis.seed(seed)(machine), settings=settings(stateful_step_count=STEPS)
        )
