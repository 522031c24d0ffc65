"""MemoryLog: the log in plain dictionaries. The oracle for the others, and the log for tests.

Nothing survives the process. It is written to be read: linear scans where the others have an index.
It is long because it holds the whole seam in one place, to be read beside it.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from forebay.log.claiming import (
    Behind,
    Space,
    check_held,
    check_lanes,
    check_letters,
    check_publish,
    check_spans,
    check_stage_name,
    check_tokens,
    corrupt_block,
    decode_outcome,
    digests_of,
    encode_outcome,
    handed_after,
    nothing_staged,
    recalled,
    returns_of,
    unknown_group,
)
from forebay.log.finding import OUTCOMES_MAX, has, is_about, soonest
from forebay.log.flows import FlowTally, Returned
from forebay.log.groupcommit import GroupCommit, Item, Result, is_whole
from forebay.log.intake import Answer, Intake, dedupe_us, remembered_us, resolve
from forebay.log.marking import Marking
from forebay.log.records import check_keys, check_scan, current, written
from forebay.log.registry import (
    change_settings,
    check_number,
    check_owners,
    check_queues,
    merge_settings,
    nearest,
    next_number,
    number_taken,
    unknown_queue,
)
from forebay.log.seam import VersionConflict
from forebay.log.seeking import Reckoning, check_dead, check_start, kept_position, no_reader, unfinished_from
from forebay.log.values import (
    ROOM,
    Append,
    Appended,
    Claim,
    Claimed,
    DeadLetter,
    FlowCount,
    Found,
    Group,
    GroupStats,
    Kept,
    LaneStats,
    Letter,
    Mark,
    OpenClaim,
    OpenRun,
    Outcome,
    Outlook,
    Owner,
    Position,
    Progress,
    Queue,
    QueueSettings,
    QueueStats,
    Receipt,
    Record,
    RejectedRow,
    Room,
    Settlement,
    Sought,
    Span,
    Spans,
    Standing,
    Start,
    Stats,
    StoredBlock,
    Trimmed,
    dead_letter_body,
    letter_block,
)
from forebay.model import (
    Clock,
    Corrupt,
    Flow,
    ForebayError,
    Limits,
    SystemClock,
    bitmap,
    check_group_name,
    check_queue_name,
    flow_of,
    pack,
    queue_of,
    sequence_of,
)

_SECOND = 1_000_000
_State = Literal["dead", "purged", "redriven"]


@dataclass
class _Queue:
    queue: Queue
    next: int = 1
    floor: int = 1
    appended_at: int = 0
    blocks: list[StoredBlock] = field(default_factory=list)
    flows: dict[int, list[Flow]] = field(default_factory=dict)
    starts: dict[int, list[int | None]] = field(default_factory=dict)
    """Start times of blocks that have any, by their first message."""
    deleted: bool = False

    def from_sequence(self, sequence: int) -> list[StoredBlock]:
        """Blocks that end at or after a sequence number."""
        key: int = pack(self.queue.number, sequence)
        return self.blocks[bisect.bisect_left(self.blocks, key, key=lambda block: block.last) :]


class _Named(msgspec.Struct, frozen=True):
    """The message of a transaction id that was accepted last, and when it was written."""

    message_id: int
    at: int
    accepted_at: int


@dataclass
class _Letter:
    letter: DeadLetter
    partition: str | None
    changed_at: int
    state: _State = "dead"


@dataclass
class _Group:
    group: Group
    position: int
    lanes: dict[str, int] = field(default_factory=dict)
    earlier: int = 0
    """How many messages were accepted before it began where it last began."""
    claimed: int = 0
    skipped: int = 0
    done: int = 0
    dead: int = 0
    purged: int = 0
    expired: int = 0
    corrupt: int = 0
    letters: dict[int, _Letter] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass
class _Claim:
    token: int
    group: int
    first: int
    count: int
    block: StoredBlock
    owner: str | None
    start_time: int
    due_at: int
    attempts: int = 0
    prev_start_time: int | None = None
    done: bytes = b""
    handed: bytes = b""
    letter: int | None = None

    def remaining(self) -> int:
        return self.count - bitmap.count(self.done)

    def handed_out(self) -> int:
        return bitmap.count(bitmap.minus(self.handed, self.done))


class MemoryLog:
    """See the module."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        remember_seconds: float = 7 * 86_400.0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limits = limits or Limits()
        self._remember = int(remember_seconds * _SECOND)
        self._commits = GroupCommit(self._flush)
        self._marks = Marking(self._note)
        self._queues: dict[int, _Queue] = {}
        self._groups: dict[int, _Group] = {}
        self._claims: dict[int, _Claim] = {}
        self._owners: dict[str, int] = {}
        self._receipts: dict[bytes, tuple[int, Answer]] = {}
        self._settled: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        self._digests: dict[bytes, _Named] = {}
        self._replaced: list[tuple[bytes, _Named | None]] = []
        """What the item that is being written has replaced."""
        self._stages: dict[str, dict[bytes, tuple[int, Append]]] = {}
        self._quarantine: dict[int, StoredBlock] = {}
        self._records: dict[tuple[str, str], Kept] = {}
        self._tokens = 0
        self._group_numbers = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._commits.close()
        await self._marks.close()

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        check_queue_name(name)
        merged = merge_settings(QueueSettings(), settings)
        held = next((q for q in self._queues.values() if q.queue.name == name), None)
        if held is not None and not held.deleted:
            return held.queue
        if held is not None:
            held.queue = Queue(held.queue.number, name, merged, self._clock.now())
            held.deleted = False
            return held.queue
        if number is None:
            number = next_number(max(self._queues, default=0))
        elif check_number(number) in self._queues:
            raise number_taken(number, self._queues[number].queue.name)
        queue = Queue(number, name, merged, self._clock.now())
        self._queues[number] = _Queue(queue)
        return queue

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        queue = await self.queue(name)
        changed = change_settings(queue.settings, settings)
        self._queues[queue.number].queue = Queue(queue.number, queue.name, changed, queue.created_at)
        return self._queues[queue.number].queue

    async def queue(self, name: str) -> Queue:
        queues = await self.queues()
        for queue in queues:
            if queue.name == name:
                return queue
        raise unknown_queue(name, nearest(name, [queue.name for queue in queues]))

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        check_queues(numbers, after, limit)
        wanted = None if numbers is None else set(numbers)
        found = [q.queue for _, q in sorted(self._queues.items()) if not q.deleted]
        chosen = [q for q in found if q.number > after and (wanted is None or q.number in wanted)]
        return chosen[:limit]

    async def delete_queue(self, name: str) -> bool:
        held = next((q for q in self._queues.values() if q.queue.name == name), None)
        if held is None or held.deleted:
            return False
        for group in await self.groups(held.queue):
            await self.delete_group(group)
        self._digests = {
            digest: known
            for digest, known in self._digests.items()
            if queue_of(known.message_id) != held.queue.number
        }
        held.deleted, held.blocks, held.floor = True, [], held.next
        held.flows.clear()
        held.starts.clear()
        return True

    async def create_group(self, queue: Queue, name: str, start: Start = "earliest") -> Group:
        check_group_name(name)
        check_start(start)
        held = self._live(queue.number)
        for group in await self.groups(queue):
            if group.name == name:
                return group
        self._group_numbers += 1
        position = _start_position(held, start)
        group = Group(self._group_numbers, queue.number, name, position)
        self._groups[group.number] = _Group(group, position)
        return group

    async def groups(self, queue: Queue) -> list[Group]:
        return [g.group for _, g in sorted(self._groups.items()) if g.group.queue == queue.number]

    async def seek(self, group: Group, start: Start, *, dry_run: bool = False) -> Sought:
        check_start(start)
        held, state = self._live(group.queue), self._group(group)
        before = state.group
        reckoning = self._reckon(held, state, _start_position(held, start))
        if not dry_run:
            self._go_on(state, reckoning)
            state.purged += reckoning.skipped
        return reckoning.sought(before, dry_run=dry_run)

    async def advance(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        check_start(Position(to))
        check_dead(group, to, dead)
        held, state = self._live(group.queue), self._group(group)
        reckoning = self._reckon(held, state, _start_position(held, Position(to)))
        if reckoning.skipped:
            if dead and any(c.group == group.number and c.letter is None for c in self._claims.values()):
                raise no_reader(group)
            ordered = held.queue.settings.ordered
            lanes = [letter.message().partition if ordered else None for letter in dead]
            buried = [
                (letter, lane)
                for letter, lane in zip(dead, lanes, strict=True)
                if letter.message_id >= self._position(state, lane)
            ]
            self._go_on(state, reckoning, letters=False)
            state.done += reckoning.skipped - len(buried)
            for letter, lane in buried:
                self._bury(state, letter, lane)
        return reckoning.skipped

    def _reckon(self, held: _Queue, state: _Group, place: int) -> Reckoning:
        """What it means for a group to go on from a place."""
        group = state.group
        claims = [c for c in self._claims.values() if c.group == group.number]
        first = pack(group.queue, place)
        left = [(c, unfinished_from(c.done, c.count, first - c.first)) for c in claims if c.letter is None]
        since = max(first, pack(group.queue, group.start))
        return Reckoning(
            start=group.start,
            place=place,
            upcoming=held.next,
            ready=self._accepted(state) - state.claimed - state.skipped,
            claimed=sum(self._claimed_since(state, block, since) for block in held.blocks),
            returned=sum(count for _, count in left),
            dropped=sum(c.remaining() - count for c, count in left),
        )

    def _go_on(self, state: _Group, reckoning: Reckoning, *, letters: bool = True) -> None:
        """Send a group to another place, perhaps with its redriven letters; the caller books."""
        claims = [
            c
            for c in self._claims.values()
            if c.group == state.group.number and (letters or c.letter is None)
        ]
        for claim in claims:
            del self._claims[claim.token]
        for letter in (state.letters[c.letter] for c in claims if c.letter is not None):
            letter.state, letter.changed_at = "dead", self._clock.now()
            state.dead += 1
        state.group = reckoning.sought(state.group, dry_run=False).group
        state.position = reckoning.place
        state.lanes.clear()
        state.earlier += reckoning.earlier_change
        state.claimed += reckoning.claimed_change

    def _claimed_since(self, state: _Group, block: StoredBlock, since: int) -> int:
        """How many messages of a block, of those from message id `since` on, the group has claimed."""
        return max(0, block.last + 1 - max(block.first, since) - self._unclaimed(state, block))

    async def delete_group(self, group: Group) -> bool:
        if self._groups.pop(group.number, None) is None:
            return False
        self._claims = {t: c for t, c in self._claims.items() if c.group != group.number}
        return True

    # The one write

    async def commit(
        self,
        appends: Sequence[Append] = (),
        settlements: Sequence[Settlement] = (),
        *,
        id: bytes | None = None,
        atomic: bool = False,
        records: Sequence[Record] = (),
    ) -> Receipt:
        intakes = [Intake(a, self._live(a.queue).queue, self._limits) for a in appends]
        return await self._commits.commit(intakes, settlements, id, atomic=atomic, records=records)

    async def _flush(self, items: list[Item]) -> list[Result | Exception]:
        return [self._try(item) for item in items]

    def _try(self, item: Item) -> Result | Exception:
        try:
            for intake in item.appends:
                self._live(intake.queue)
            return self._write(item)
        except ForebayError as error:
            return error

    def _write(self, item: Item) -> Result:
        now = self._clock.now()
        known = self._settled.get(item.id) if item.settlements or item.records else None
        conflicts = self._conflicts(item.settlements) if known is None else known[1]
        answers: list[Answer] = []
        self._replaced.clear()
        for intake in item.appends:
            answer = self._answer(intake, now)
            fresh = not answer.known and not answer.found
            answers.append(self._append(intake, now) if fresh else answer)
        result = Result(answers, conflicts)
        if item.atomic and not is_whole(item, result):
            self._take_all_back(item, answers)
            return result
        if known is None:
            try:
                self._write_records(item.records, now)
            except VersionConflict:
                self._take_all_back(item, answers)
                raise
            settled = [s for i, s in enumerate(item.settlements) if i not in conflicts]
            for settlement in settled:
                self._settle(settlement, now)
            for token, behind in returns_of(settled).items():
                self._send_along(token, behind)
            if item.settlements or item.records:
                self._settled[item.id] = (now, conflicts)
        return result

    def _write_records(self, records: Sequence[Record], now: int) -> None:
        """Write all of them, or none."""
        changes = {(r.space, r.key): written(r, self._records.get((r.space, r.key)), now) for r in records}
        for place, kept in changes.items():
            if kept is None:
                self._records.pop(place, None)
            else:
                self._records[place] = kept

    def _take_all_back(self, item: Item, answers: Sequence[Answer]) -> None:
        """Undo what was appended just now."""
        for intake, answer in reversed(list(zip(item.appends, answers, strict=True))):
            if not answer.known and not answer.found:
                self._take_back(intake)
        for digest, known in reversed(self._replaced):
            if known is None:
                del self._digests[digest]
            else:
                self._digests[digest] = known

    def _answer(self, intake: Intake, now: int) -> Answer:
        if intake.id in self._receipts:
            answer = self._known(intake.id)
            return Answer(answer.first, answer.count, known=True, dropped=answer.dropped)
        window = dedupe_us(self._live(intake.queue).queue.settings)
        found = []
        for index, digest in enumerate(intake.digests or ()):
            known = None if digest is None else self._digests.get(digest)
            if known is not None and abs(known.accepted_at - _accepted(intake, now)) < window:
                found.append((index, known.message_id))
        return Answer(found=tuple(found))

    def _known(self, block_id: bytes) -> Answer:
        return self._receipts[block_id][1]

    def _append(self, intake: Intake, now: int) -> Answer:
        held = self._live(intake.queue)
        first, count = pack(intake.queue, held.next), len(intake.block)
        if count:
            held.appended_at = max(now, held.appended_at)
            held.next += count
            held.blocks.append(
                StoredBlock(first, count, intake.id, held.appended_at, intake.partition, intake.body)
            )
            held.flows[first] = [flow_of(headers) for headers in intake.block.headers()]
            if intake.block.start_times is not None:
                held.starts[first] = intake.block.start_times
        for index, digest in enumerate(intake.digests or ()):
            if digest is not None:
                named = _Named(first + index, now, _accepted(intake, now))
                known = self._digests.get(digest)
                if known is None or known.accepted_at <= named.accepted_at:
                    self._replaced.append((digest, known))
                    self._digests[digest] = named
        answer = Answer(first, count, dropped=intake.dropped)
        self._receipts[intake.id] = (now, answer)
        return answer

    def _take_back(self, intake: Intake) -> None:
        """Undo the newest append of a queue."""
        held = self._live(intake.queue)
        if len(intake.block):
            held.next -= held.blocks.pop().count
            del held.flows[pack(intake.queue, held.next)]
            held.starts.pop(pack(intake.queue, held.next), None)
        del self._receipts[intake.id]

    def _conflicts(self, settlements: Sequence[Settlement]) -> tuple[int, ...]:
        """Which settlements come too late, given that those before them are carried out."""
        conflicts, done = [], dict[int, bytes]()
        for i, settlement in enumerate(settlements):
            claim = self._claims.get(settlement.token)
            if (
                claim is None
                or claim.owner is None
                or (claim.group, claim.count) != (settlement.group, settlement.count)
            ):
                conflicts.append(i)
                continue
            before, finished = done.get(claim.token, claim.done), settlement.finished()
            if any(bitmap.overlap(before, finished)):
                conflicts.append(i)
            else:
                done[claim.token] = bitmap.union(before, finished)
        return tuple(conflicts)

    def _settle(self, settlement: Settlement, now: int) -> None:
        claim, group = self._claims[settlement.token], self._groups[settlement.group]
        claim.done = bitmap.union(claim.done, settlement.finished())
        group.done += bitmap.count(settlement.done)
        group.expired += bitmap.count(settlement.expired)
        for d in settlement.deferred:
            self._add_claim(
                claim.group,
                claim.first + d.offset,
                d.count,
                claim.block,
                owner=None,
                start_time=d.due_at,
                attempts=d.attempts,
                prev_start_time=d.prev_start_time,
                letter=claim.letter,
            )
        for death in settlement.dead:
            letter = DeadLetter(
                claim.first + death.offset, now, death.reason, death.attempts, dead_letter_body(death)
            )
            self._bury(group, letter, claim.block.partition, claim)
        body = encode_outcome(settlement)
        group.outcomes.append(decode_outcome(claim.first, now, claim.count, body))
        if not claim.remaining():
            del self._claims[claim.token]

    def _send_along(self, token: int, behind: Behind) -> None:
        """Send back what an ordered queue has left of a claim behind a message that went back, uncounted."""
        claim = self._claims.get(token)
        if claim is None or not self._queues[queue_of(claim.first)].queue.settings.ordered:
            return
        for offset, count in behind.runs(claim.done, claim.count):
            claim.done = bitmap.union(claim.done, bitmap.of(range(offset, offset + count), claim.count))
            self._add_claim(
                claim.group,
                claim.first + offset,
                count,
                claim.block,
                owner=None,
                start_time=behind.due_at,
                attempts=claim.attempts,
                prev_start_time=claim.prev_start_time,
            )
        if not claim.remaining():
            del self._claims[token]

    def _bury(
        self, group: _Group, letter: DeadLetter, partition: str | None, claim: _Claim | None = None
    ) -> None:
        """Keep a dead letter. A message that was handed out again after it had died has only one."""
        message_id, now = letter.message_id, self._clock.now()
        known = group.letters.get(message_id)
        others = (c for c in self._claims.values() if c.group == group.group.number and c is not claim)
        if any(c.letter == message_id for c in others):
            group.purged += 1  # the letter itself is on its way again: what becomes of that counts
            return
        if known is not None and known.state == "dead":
            group.purged += 1
        else:
            group.dead += 1
        letter = msgspec.structs.replace(letter, died_at=now)
        group.letters[message_id] = _Letter(letter, partition, now)

    # Handing out

    async def claim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        partition: str | None = None,
        known: int | None = None,
    ) -> Claimed:
        held, state = self._live(group.queue), self._group(group)
        self._owners.setdefault(owner, self._clock.now())
        if held.queue.settings.ordered:
            runs = self._ordered_runs(held, state, room, partition, owner)
        else:
            runs = self._next_runs(held, state, room)
        claims = []
        for block, first, count in runs:
            claims.append(
                self._add_claim(group.number, first, count, block, owner=owner, start_time=block.appended_at)
            )
            state.claimed += count
        return self._claimed(claims, known)

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        return await self._marks.mark(marks)

    async def _note(self, marks: Sequence[Mark]) -> list[int]:
        said = {mark.token: mark for mark in marks}
        late = [i for i, mark in enumerate(marks) if self._is_refused(mark, said)]
        for i, mark in enumerate(marks):
            if i not in late:
                claim = self._claims[mark.token]
                claim.handed = bitmap.minus(bitmap.union(claim.handed, mark.handed), mark.returned)
        return late

    def _is_refused(self, mark: Mark, said: Mapping[int, Mark]) -> bool:
        claim = self._claims.get(mark.token)
        return (
            claim is None
            or (claim.group, claim.count) != (mark.group, mark.count)
            or claim.owner is None
            or (any(hands := bitmap.minus(mark.handed, mark.returned)) and self._is_late(claim, hands, said))
        )

    def _next_runs(self, held: _Queue, state: _Group, room: Room) -> list[tuple[StoredBlock, int, int]]:
        runs = []
        space = Space(room)
        for block in held.from_sequence(state.position):
            first = max(block.first, pack(held.queue.number, state.position))
            count = space.take(block.last - first + 1, len(block.body))
            if not count:
                break
            runs.append((block, first, count))
            state.position = sequence_of(first) + count
            if first + count <= block.last:
                break
        return runs

    def _ordered_runs(
        self, held: _Queue, state: _Group, room: Room, partition: str | None, owner: str
    ) -> list[tuple[StoredBlock, int, int]]:
        busy = {
            c.block.partition
            for c in self._claims.values()
            if c.group == state.group.number and (partition is None or c.owner != owner)
        }
        lanes: dict[str, list[StoredBlock]] = {}
        for block in held.from_sequence(state.group.start):
            lane = block.partition or ""
            wanted = partition is None or lane == partition
            position = state.lanes.get(lane, pack(held.queue.number, state.group.start))
            if wanted and lane not in busy and block.last >= position:
                lanes.setdefault(lane, []).append(block)
        runs: list[tuple[StoredBlock, int, int]] = []
        space = Space(room)
        for lane, blocks in lanes.items():
            for block in blocks:
                start = state.lanes.get(lane, pack(held.queue.number, state.group.start))
                first = max(block.first, start)
                count = space.take(block.last - first + 1, len(block.body))
                if not count:
                    return runs
                runs.append((block, first, count))
                state.lanes[lane] = first + count
                if first + count <= block.last:
                    return runs
        return runs

    async def due(
        self, group: Group, owner: str, room: Room = ROOM, *, partition: str | None = None
    ) -> Claimed:
        self._group(group)
        now = self._clock.now()
        self._owners.setdefault(owner, now)
        waiting = [c for c in self._deferred(group, partition) if c.due_at <= now]
        waiting.sort(key=lambda c: (c.due_at, c.first, c.count))
        claimed = self._take_over(waiting, owner, room)
        left = [c.due_at for c in self._deferred(group, partition)]
        return msgspec.structs.replace(claimed, next_due_at=min(left, default=None))

    async def heartbeat(self, owner: str | Sequence[str]) -> None:
        self._owners.update(dict.fromkeys(check_owners(owner), self._clock.now()))

    async def reclaim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        of: Sequence[str] = (),
        silent_seconds: float = 30.0,
        besides: Collection[int] = (),
    ) -> Claimed:
        self._group(group)
        now = self._clock.now()
        silent = now - int(silent_seconds * _SECOND)
        self._owners.setdefault(owner, now)
        lost = [
            c
            for c in self._claims.values()
            if c.group == group.number
            and c.owner is not None
            and c.token not in besides
            and (c.owner in of or (c.owner != owner and self._owners.get(c.owner, 0) <= silent))
        ]
        lost.sort(key=lambda c: (c.first, c.count, c.letter is not None))
        return self._take_over(lost, owner, room)

    async def recall(self, group: Group, tokens: Sequence[int]) -> list[Claim]:
        self._group(group)
        wanted = set(check_tokens(tokens))
        return self._recalled(group, (c for c in self._claims.values() if c.token in wanted))

    async def holding(self, group: Group, ids: Sequence[int]) -> list[Claim]:
        self._group(group)
        wanted = check_held(group, ids)
        claims = (c for c in self._claims.values() if any(_open(c, group, i) for i in wanted))
        return self._recalled(group, claims)

    def _recalled(self, group: Group, claims: Iterable[_Claim]) -> list[Claim]:
        """Those of the claims that are held, with their blocks."""
        found = [
            Claim(
                c.token, c.group, c.first, c.count, c.done, c.handed, c.attempts, c.start_time,
                c.prev_start_time, self._stored(c.block),
            )
            for c in claims
            if c.group == group.number and c.owner is not None and self._has_block(c)
        ]  # fmt: skip
        return recalled(found, self._queues[group.queue].queue.name)

    async def seize(
        self,
        group: Group,
        owner: str,
        *,
        ids: Sequence[int] = (),
        partition: str | None = None,
        held: bool = True,
    ) -> int:
        self._group(group)
        wanted = check_held(group, ids)
        self._owners.setdefault(owner, self._clock.now())
        found = [
            c
            for c in self._claims.values()
            if c.group == group.number
            and (held or c.owner is None)
            and c.owner != owner
            and (
                (partition is not None and c.block.partition == partition)
                or any(_open(c, group, message_id) for message_id in wanted)
            )
        ]
        for claim in found:
            claim.owner = owner
        return len(found)

    async def owners(self) -> list[Owner]:
        return [Owner(name, beat_at) for name, beat_at in sorted(self._owners.items())]

    async def retire(self, owner: str) -> int:
        now, count = self._clock.now(), 0
        self._owners.pop(owner, None)
        for claim in self._claims.values():
            if claim.owner == owner:
                claim.owner, claim.due_at = None, now
                count += 1
        return count

    async def stamp(self) -> str | None:
        return None

    async def outlook(self, groups: Sequence[Group]) -> list[Outlook]:
        return [self._outlook(group) for group in groups if group.number in self._groups]

    def _outlook(self, group: Group) -> Outlook:
        held, state = self._queues[group.queue], self._groups[group.number]
        out = {c.block.partition for c in self._claims.values() if c.group == group.number}
        free = [b for b in held.blocks if not held.queue.settings.ordered or b.partition not in out]
        ready = next((b.last for b in free if self._unclaimed(state, b)), None)
        due_at = min((c.due_at for c in self._deferred(group, None)), default=None)
        return Outlook(group.number, held.next, ready, due_at, state.group.sought)

    def _take_over(self, claims: Iterable[_Claim], owner: str, room: Room) -> Claimed:
        taken: list[_Claim] = []
        space = Space(room)
        for claim in claims:
            if not self._has_block(claim):
                self._groups[claim.group].expired += claim.remaining()
                del self._claims[claim.token]
                continue
            if self._waits(claim, owner):
                continue
            if not space.fits(claim.count, len(claim.block.body)):
                break
            del self._claims[claim.token]
            self._tokens += 1
            claim.token, claim.owner = self._tokens, owner
            self._claims[claim.token] = claim
            taken.append(claim)
        return self._claimed(taken)

    def _deferred(self, group: Group, partition: str | None) -> Iterator[_Claim]:
        return (
            c
            for c in self._claims.values()
            if c.group == group.number and c.owner is None and partition in (None, c.block.partition or "")
        )

    def _waits(self, claim: _Claim, owner: str) -> bool:
        """Whether an earlier run of the same partition is elsewhere: with another owner, or deferred.

        An owner may always have its own.
        """
        return claim.owner != owner and any(c.owner != owner for c in self._earlier(claim))

    def _is_late(self, claim: _Claim, hands: bytes, said: Mapping[int, Mark]) -> bool:
        """Tell whether messages of an ordered queue went back, or overtake earlier ones that are not out."""
        is_ordered = self._queues[queue_of(claim.first)].queue.settings.ordered
        return is_ordered and (any(bitmap.overlap(claim.done, hands)) or self._is_overtaking(claim, said))

    def _is_overtaking(self, claim: _Claim, said: Mapping[int, Mark]) -> bool:
        """Whether something earlier of the partition will not be out after what is `said`, by token."""
        return any(
            c.owner != claim.owner
            or bitmap.count(bitmap.union(c.done, handed_after(c.handed, said.get(c.token), c.count)))
            < c.count
            for c in self._earlier(claim)
        )

    def _earlier(self, claim: _Claim) -> Iterator[_Claim]:
        """The runs of an ordered queue that come before one in its partition."""
        if self._queues[queue_of(claim.first)].queue.settings.ordered:
            for c in self._claims.values():
                if (
                    c.group == claim.group
                    and c.block.partition == claim.block.partition
                    and (c.first, c.count) < (claim.first, claim.count)
                ):
                    yield c

    def _add_claim(
        self,
        group: int,
        first: int,
        count: int,
        block: StoredBlock,
        *,
        owner: str | None,
        start_time: int,
        attempts: int = 0,
        prev_start_time: int | None = None,
        letter: int | None = None,
    ) -> _Claim:
        self._tokens += 1
        nothing = bitmap.empty(count)
        claim = _Claim(
            self._tokens, group, first, count, block, owner, start_time, start_time, attempts,
            prev_start_time, nothing, nothing, letter,
        )  # fmt: skip
        self._claims[claim.token] = claim
        return claim

    def _claimed(self, claims: Iterable[_Claim], known: int | None = None) -> Claimed:
        good, bad = [], []
        for c in claims:
            block = c.block
            if known is not None and block.first >= known:
                block = msgspec.structs.replace(block, body=b"")
            else:
                try:
                    self._stored(block).check()
                except Corrupt as error:
                    bad.append(self._set_aside(c, error))
                    continue
            good.append(
                Claim(
                    c.token, c.group, c.first, c.count, c.done, c.handed, c.attempts,
                    c.start_time, c.prev_start_time, block,
                )
            )  # fmt: skip
        return Claimed(good, bad)

    def _set_aside(self, claim: _Claim, error: Corrupt) -> Corrupt:
        self._quarantine[claim.block.first] = self._stored(claim.block)
        self._groups[claim.group].corrupt += claim.remaining()
        del self._claims[claim.token]
        return corrupt_block(self._queues[queue_of(claim.first)].queue.name, claim.block, error)

    # Reading

    async def read(
        self,
        queue: Queue,
        first: int = 1,
        *,
        messages: int = 10_000,
        bytes: int = 64 << 20,
        partition: str | None = None,
    ) -> list[StoredBlock]:
        blocks: list[StoredBlock] = []
        space = Space(Room(messages, bytes))
        for block in self._live(queue.number).from_sequence(first):
            if partition is not None and block.partition != partition:
                continue
            if not space.fits(block.count, len(block.body)):
                break
            blocks.append(block)
        return blocks

    async def dead_letters(self, group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        letters = sorted(self._group(group).letters.items())
        return [kept.letter for i, kept in letters if i > after and kept.state == "dead"][:limit]

    async def outcomes(self, group: Group, first: int, *, limit: int = 100) -> list[Outcome]:
        found = self._live(group.queue).from_sequence(sequence_of(first))[:1]
        return [
            outcome
            for outcome in self._group(group).outcomes
            if found and found[0].first <= min(first, outcome.first) and outcome.first <= found[0].last
        ][:limit]

    async def progress(self, group: Group) -> Progress:
        held, state = self._live(group.queue), self._group(group)
        ordered = held.queue.settings.ordered
        claims = sorted(
            (c for c in self._claims.values() if c.group == group.number), key=lambda c: (c.first, c.token)
        )
        return Progress(
            at=self._clock.now(),
            group=state.group,
            earlier=state.earlier,
            purged=state.purged,
            next=held.next,
            floor=held.floor,
            position=state.group.start if ordered else state.position,
            lanes={name: sequence_of(at) for name, at in state.lanes.items()} if ordered else {},
            open=[
                OpenRun(
                    c.token, c.first, c.count, c.done, c.handed, c.owner is not None, c.due_at, c.start_time,
                    c.attempts,
                )
                for c in claims
            ],
            dead=[
                (i, kept.letter.died_at) for i, kept in sorted(state.letters.items()) if kept.state == "dead"
            ],
        )  # fmt: skip

    async def find(self, message_id: int) -> Found:
        held = self._live(queue_of(message_id))
        blocks = held.from_sequence(sequence_of(message_id))[:1]
        block = blocks[0] if blocks and blocks[0].first <= message_id else None
        standings = [self._standing(group, message_id, block) for group in await self.groups(held.queue)]
        return Found(at=self._clock.now(), queue=held.queue, next=held.next, block=block, standings=standings)

    def _standing(self, group: Group, message_id: int, block: StoredBlock | None) -> Standing:
        state = self._groups[group.number]
        kept = state.letters.get(message_id)
        unclaimed = 0 if block is None else self._unclaimed(state, block)
        about = [outcome for outcome in state.outcomes if is_about(outcome, message_id)]
        return Standing(
            group=group,
            claimed=block is None or message_id <= block.last - unclaimed,
            claim=soonest(found for c in self._claims.values() if (found := _open(c, group, message_id))),
            letter=None if kept is None else Letter(kept.letter, kept.state, kept.changed_at),
            corrupt=any(b.first <= message_id <= b.last for b in self._quarantine.values()),
            outcomes=about[-OUTCOMES_MAX:],
        )

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        since = self._clock.now() - dedupe_us(self._live(queue.number).queue.settings)
        found = (self._digests.get(digest) for digest in digests_of(queue, keys))
        return [None if known is None or known.at <= since else known.message_id for known in found]

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        check_keys(space, keys)
        now = self._clock.now()
        found = (current(self._records.get((space, key)), now) for key in keys)
        return [kept for kept in found if kept is not None]

    async def scan(self, space: str, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Kept]:
        check_scan(space, prefix, after, limit)
        now = self._clock.now()
        keys = (key for place, key in sorted(self._records) if place == space and key > after)
        found = (current(self._records[space, key], now) for key in keys if key.startswith(prefix))
        return [kept for kept in found if kept is not None][:limit]

    async def quarantined(self, queue: Queue) -> list[StoredBlock]:
        return [block for first, block in sorted(self._quarantine.items()) if queue_of(first) == queue.number]

    async def flows(self, group: Group, *, besides: Collection[str] | None = None) -> list[FlowCount]:
        state, tally = self._group(group), FlowTally()
        for block in self._waiting(state):
            left = self._unclaimed(state, block)
            flows = self._queues[group.queue].flows[block.first]
            if left == block.count or len(set(flows)) == 1:
                for flow in flows[block.count - left :]:
                    tally.add(flow, 1, block.appended_at)
            elif left:
                tally.add_body(block.body, left, block.appended_at)
        now = self._clock.now()
        tally.hold_back(Counter(self._delayed(state, now)))
        for c in self._deferred(group, None):
            if c.due_at <= now and self._has_block(c):
                key, begin = (c.block.last, c.letter is not None), c.first - c.block.first
                returned = Returned(key, begin, c.count, c.done, c.start_time)
                tally.add_returned(returned, self._stored(c.block).body)
        return tally.counts() + ([] if besides is None else self._held_flows(group, besides))

    def _held_flows(self, group: Group, besides: Collection[str]) -> list[FlowCount]:
        tally = FlowTally()
        for c in self._claims.values():
            if c.group == group.number and c.owner not in (None, *besides) and self._has_block(c):
                key, begin = (c.block.last, c.letter is not None), c.first - c.block.first
                out = bitmap.union(c.done, c.handed)
                held = Returned(key, begin, c.count, out, c.start_time)
                tally.add_returned(held, self._stored(c.block).body)
        return tally.counts(is_held=True)

    async def lanes(self, group: Group, *, after: str | None = None, limit: int = 100) -> list[LaneStats]:
        state, held = self._group(group), self._live(group.queue)
        lanes: dict[str, list[StoredBlock]] = {}
        for block in held.blocks:
            if block.partition is not None and (after is None or block.partition > after):
                lanes.setdefault(block.partition, []).append(block)
        return [self._lane_stats(state, lane, lanes[lane]) for lane in sorted(lanes)[: check_lanes(limit)]]

    def _lane_stats(self, state: _Group, partition: str, blocks: Sequence[StoredBlock]) -> LaneStats:
        number, waiting = state.group.number, list[tuple[int, int]]()
        claims = [c for c in self._claims.values() if c.group == number and c.block.partition == partition]
        out = {c.token: c.handed_out() if c.owner is not None else 0 for c in claims if self._has_block(c)}
        waiting.extend((block.appended_at, self._unclaimed(state, block)) for block in blocks)
        waiting.extend((c.block.appended_at, c.remaining() - out[c.token]) for c in claims if c.token in out)
        return LaneStats(
            partition=partition,
            first=blocks[0].first,
            last=blocks[-1].last,
            oldest_at=blocks[0].appended_at,
            newest_at=blocks[-1].appended_at,
            messages=sum(block.count for block in blocks),
            waiting=sum(count for _, count in waiting),
            handed=sum(out.values()),
            oldest_waiting_at=min((at for at, count in waiting if count), default=None),
        )

    async def spans(
        self,
        queue: Queue,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Spans:
        check_spans(partitions, limit)
        held, found = self._live(queue.number), dict[str, Span]()
        for block in held.blocks:
            if (name := block.partition) is not None:
                begun = found.get(name)
                first, oldest_at = (
                    (begun.first, begun.oldest_at) if begun else (block.first, block.appended_at)
                )
                found[name] = Span(name, first, block.last, oldest_at, block.appended_at)
        if partitions is not None:
            return Spans(held.appended_at, [found[name] for name in partitions if name in found])
        names = [name for name in sorted(found) if after is None or name > after]
        return Spans(held.appended_at, [found[name] for name in names[:limit]])

    async def lane_count(self, queue: Queue) -> int:
        return len({block.partition for block in self._live(queue.number).blocks} - {None})

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        check_queues(numbers, after, limit)
        stats = []
        for queue in await self.queues(numbers=numbers, after=after, limit=limit):
            held = self._queues[queue.number]
            groups = [self._group_stats(group) for group in await self.groups(queue)]
            stats.append(QueueStats(queue=queue, next=held.next, floor=held.floor, groups=groups))
        return Stats(self._clock.now(), stats)

    def _delayed(self, state: _Group, now: int) -> Iterator[Flow]:
        """The flow of each message that the group has not claimed, and whose start time is to come."""
        held = self._queues[state.group.queue]
        for block in self._waiting(state) if held.starts else ():
            times = held.starts.get(block.first, [])
            for offset in range(block.count - self._unclaimed(state, block), block.count):
                if times and (start := times[offset]) is not None and start > now:
                    yield held.flows[block.first][offset]

    def _group_stats(self, group: Group) -> GroupStats:
        state = self._groups[group.number]
        claims = [c for c in self._claims.values() if c.group == group.number]
        now = self._clock.now()
        accepted, delayed = self._accepted(state), len(list(self._delayed(state, now)))
        return GroupStats(
            group=group,
            accepted=accepted,
            ready=accepted - state.claimed - state.skipped - delayed,
            held=sum(c.remaining() for c in claims if c.owner is not None),
            deferred=sum(c.remaining() for c in claims if c.owner is None),
            done=state.done,
            dead=state.dead,
            purged=state.purged,
            expired=state.expired + state.skipped,
            corrupt=state.corrupt,
            handed=sum(c.handed_out() for c in claims if c.owner is not None),
            due=sum(c.remaining() for c in claims if c.owner is None and c.due_at <= now),
            delayed=delayed,
        )

    # Dead letters

    async def redrive(self, group: Group, ids: Sequence[int]) -> list[int]:
        state, now = self._group(group), self._clock.now()
        changed = self._change(state, ids, "dead", "redriven")
        for message_id in changed:
            kept = state.letters[message_id]
            block = letter_block(message_id, kept.letter.died_at, kept.partition, kept.letter.body)
            self._add_claim(group.number, message_id, 1, block, owner=None, start_time=now, letter=message_id)
        state.dead -= len(changed)
        return changed

    async def purge(self, group: Group, ids: Sequence[int]) -> list[int]:
        state = self._group(group)
        changed = self._change(state, ids, "dead", "purged")
        state.dead -= len(changed)
        state.purged += len(changed)
        return changed

    async def restore(self, group: Group, ids: Sequence[int]) -> list[int]:
        state, wanted = self._group(group), check_letters(ids)
        claims = {c.letter: c for c in self._claims.values() if c.group == group.number and c.owner is None}
        purged = self._change(state, wanted, "purged", "dead")
        redriven = self._change(state, [i for i in wanted if i in claims], "redriven", "dead")
        for message_id in redriven:
            del self._claims[claims[message_id].token]
        state.dead += len(purged) + len(redriven)
        state.purged -= len(purged)
        return sorted(purged + redriven)

    def _change(
        self,
        state: _Group,
        ids: Sequence[int],
        before: _State,
        after: _State,
    ) -> list[int]:
        """Change the state of those letters that are in a certain one; which ones were."""
        now = self._clock.now()
        changed = [i for i in check_letters(ids) if i in state.letters and state.letters[i].state == before]
        for message_id in changed:
            state.letters[message_id].state, state.letters[message_id].changed_at = after, now
        return changed

    # Two steps

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        check_stage_name(stage)
        for append in appends:
            Intake(append, self._live(append.queue).queue, self._limits)
        staged = self._stages.setdefault(stage, {})
        for append in appends:
            staged.setdefault(append.block.id, (self._clock.now(), append))

    async def publish(
        self, stage: str, ids: Sequence[bytes], *, records: Sequence[Record] = (), replayed: bool = False
    ) -> Receipt:
        check_publish(stage, ids)
        staged = self._stages.get(stage, {})
        missing = [i for i in ids if i not in staged]
        if missing and not all(i in self._receipts for i in missing):
            raise nothing_staged(stage, len(missing))
        found = (staged[i][1] for i in ids if i in staged)
        appends = [Append(a.queue, a.block, a.body, replayed=replayed) for a in found]
        receipt = await self.commit(appends, atomic=True, records=records)
        fresh = iter(receipt.appended)
        self._stages.pop(stage, None)
        return Receipt([next(fresh) if i in staged else self._published(i) for i in ids])

    def _published(self, block_id: bytes) -> Appended:
        answer = self._known(block_id)
        return resolve(Answer(answer.first, answer.count, known=True, dropped=answer.dropped))

    # Upkeep

    def hang_up(self) -> None:
        """There are no connections."""

    async def sweep(self, limit: int = 10_000) -> int:  # noqa: ARG002 - there is no inbox
        return 0

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:  # noqa: ARG002 - likewise
        return []

    async def trim(self) -> Trimmed:
        now, dropped = self._clock.now(), 0
        for held in self._queues.values():
            dropped += self._trim_queue(held, now)
        before, remembered = now - self._remember, len(self._receipts) + len(self._settled)
        self._receipts = {i: known for i, known in self._receipts.items() if known[0] >= before}
        self._settled = {i: known for i, known in self._settled.items() if known[0] >= before}
        forgotten = remembered - len(self._receipts) - len(self._settled)
        times = {n: remembered_us(q.queue.settings, self._remember) for n, q in self._queues.items()}
        self._digests = {
            digest: known
            for digest, known in self._digests.items()
            if known.at > now - times[queue_of(known.message_id)]
        }
        self._stages = {
            name: staged
            for name, staged in self._stages.items()
            if any(at >= now - self._remember for at, _ in staged.values())
        }
        holding = {claim.owner for claim in self._claims.values()}
        self._owners = {name: at for name, at in self._owners.items() if at >= before or name in holding}
        for state in self._groups.values():
            self._trim_letters(state, before)
        expired = [place for place, kept in self._records.items() if current(kept, now) is None]
        for place in expired:
            del self._records[place]
        return Trimmed(blocks=dropped, receipts=forgotten, records=len(expired))

    def _trim_letters(self, state: _Group, before: int) -> None:
        """Forget letters that were purged, or redriven and finished, before a time."""
        waiting = {c.letter for c in self._claims.values() if c.group == state.group.number}
        state.letters = {
            i: kept
            for i, kept in state.letters.items()
            if kept.state == "dead" or kept.changed_at >= before or i in waiting
        }

    def _trim_queue(self, held: _Queue, now: int) -> int:
        settings = held.queue.settings
        kept_from = now - int(settings.keep_seconds * _SECOND)
        expire = settings.expire_seconds
        expired_before = -1 if expire is None else now - int(expire * _SECOND)
        needed = self._needed(held)
        drop = 0
        for block in held.blocks:
            unneeded = block.last < needed and block.appended_at < kept_from
            if not unneeded and block.appended_at >= expired_before:
                break
            drop += 1
        for state in self._groups.values():
            if state.group.queue == held.queue.number:
                self._skip(state, held, held.blocks[:drop])
        if drop:
            held.floor = sequence_of(held.blocks[drop - 1].last) + 1
            for block in held.blocks[:drop]:
                del held.flows[block.first]
                held.starts.pop(block.first, None)
            del held.blocks[:drop]
        return drop

    def _needed(self, held: _Queue) -> int:
        """The first message id that some group still needs."""
        needed: int = pack(held.queue.number, held.next)
        for state in self._groups.values():
            if state.group.queue == held.queue.number:
                needed = min([needed, *(b.first for b in held.blocks if self._unclaimed(state, b))])
        claims = [c.first for c in self._claims.values() if c.letter is None]
        return min([needed, *(first for first in claims if queue_of(first) == held.queue.number)])

    def _waiting(self, state: _Group) -> list[StoredBlock]:
        """All blocks of which the group has not claimed everything, perhaps among others."""
        held = self._queues[state.group.queue]
        return held.blocks if held.queue.settings.ordered else held.from_sequence(state.position)

    def _unclaimed(self, state: _Group, block: StoredBlock) -> int:
        """How many messages of a block the group has not claimed."""
        return max(0, block.last - max(self._position(state, block.partition), block.first) + 1)

    def _position(self, state: _Group, lane: str | None) -> int:
        """The id of the first message that the group has not claimed; a lane is an ordered queue's."""
        number = state.group.queue
        if self._queues[number].queue.settings.ordered:
            return state.lanes.get(lane or "", pack(number, state.group.start))
        return pack(number, state.position)

    def _skip(self, state: _Group, held: _Queue, blocks: Sequence[StoredBlock]) -> None:
        """Count what is dropped unread as expired, and move the cursor past it."""
        for block in blocks:
            unclaimed = self._unclaimed(state, block)
            if unclaimed:
                state.skipped += unclaimed
                if held.queue.settings.ordered:
                    state.lanes[block.partition or ""] = block.last + 1
                else:
                    state.position = sequence_of(block.last) + 1

    # Look-ups

    def _accepted(self, state: _Group) -> int:
        """How many messages the group was given, those that it is given again included."""
        return state.earlier + self._queues[state.group.queue].next - state.group.start

    def _live(self, number: int) -> _Queue:
        held = self._queues.get(number)
        if held is None or held.deleted:
            raise unknown_queue(f"number {number}", ())
        return held

    def _group(self, group: Group) -> _Group:
        state = self._groups.get(group.number)
        if state is None:
            raise unknown_group(group)
        return state

    def _stored(self, block: StoredBlock) -> StoredBlock:
        """The block as it is held now (tests damage it)."""
        held = self._queues[queue_of(block.first)]
        found = held.from_sequence(sequence_of(block.first))
        return found[0] if found and found[0].id == block.id else block

    def _has_block(self, claim: _Claim) -> bool:
        """Whether there is something to hand out: a block that has not expired, or a letter."""
        return claim.letter is not None or self._is_kept(claim.block)

    def _is_kept(self, block: StoredBlock) -> bool:
        return sequence_of(block.first) >= self._queues[queue_of(block.first)].floor


def _accepted(intake: Intake, now: int) -> int:
    """When a block that is written now was accepted."""
    return now if intake.accepted_at is None else min(intake.accepted_at, now)


def _open(claim: _Claim, group: Group, message_id: int) -> OpenClaim | None:
    """The claim, if a message is an unfinished part of it."""
    offset = message_id - claim.first
    if claim.group != group.number or not 0 <= offset < claim.count or has(claim.done, offset):
        return None
    return OpenClaim(claim.owner, claim.due_at, claim.attempts, has(claim.handed, offset))


def _start_position(held: _Queue, start: Start) -> int:
    if start == "latest":
        return held.next
    if start == "earliest":
        return held.floor
    if isinstance(start, Position):
        return kept_position(start, held.floor, held.next)
    later = (b for b in held.blocks if b.appended_at >= start)
    return next((sequence_of(b.first) for b in later), held.next)
