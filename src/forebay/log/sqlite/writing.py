"""The one write: blocks, settlements and records, the items of a flush in one transaction.

Invariants: items, and the parts of an item, take effect one after the other, each seeing those
before it; what was answered to a block id or to the id of a commit is answered again; an atomic
item that is not whole leaves nothing behind, and neither does one whose records are refused.
"""

from typing import Final

import msgspec

from forebay.log.claiming import Behind, encode_outcome, returns_of
from forebay.log.groupcommit import Item, Result, is_whole
from forebay.log.intake import Answer, Intake, dedupe_us
from forebay.log.registry import unknown_queue
from forebay.log.sqlite import lanes, records
from forebay.log.sqlite.catalogue import QueueRow, find_queue, group_row
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.handing import take_tokens
from forebay.log.values import Append, Queue, QueueSettings, Settlement, dead_letter_body
from forebay.model import SEQUENCE_BITS, Limits, bitmap

_encode_conflicts: Final = msgspec.msgpack.Encoder().encode
_decode_conflicts: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class Offer(Intake):
    """A block on its way in, and the settings by which it was looked at."""

    __slots__ = ("settings",)

    def __init__(self, append: Append, queue: Queue, limits: Limits) -> None:
        super().__init__(append, queue, limits)
        self.settings = queue.settings


class Outdated(Exception):  # noqa: N818 - a signal between the flush and the commit, not an error
    """Another process changed a queue since its block was looked at: look again."""


class NotWhole(Exception):  # noqa: N818 - a signal that rolls the transaction back, not an error
    """An atomic item that would not have taken effect whole."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class Flush:
    """Writes items inside a transaction; `finish` writes what they have in common."""

    def __init__(self, tx: Transaction, now: int) -> None:
        self._tx = tx
        self._now = now
        self._queues: dict[int, QueueRow | None] = {}
        self._bases: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._dead: dict[int, int] = {}
        self._expired: dict[int, int] = {}
        self._purged: dict[int, int] = {}
        self._lanes: dict[int, dict[str, None]] = {}

    def write(self, item: Item) -> Result | Exception:
        """Write one item, or return why nothing of it was."""
        refusal = self._refusal(item)
        if refusal is not None:
            return refusal
        known = self._tx.value("settled", item.id) if item.settlements or item.records else None
        answers = [self._append(intake) for intake in item.appends]
        conflicts = self._settle_all(item) if known is None else _decode_conflicts(known)
        result = Result(answers, conflicts)
        if item.atomic and not is_whole(item, result):
            raise NotWhole(result)
        if item.records and known is None:
            records.write(self._tx, item.records, self._now)
        return result

    def finish(self) -> None:
        """Write the counters of queues and groups, and find out which lanes are ready."""
        for number, row in self._queues.items():
            if row is not None and row.next != self._bases[number]:
                self._tx.run("move_queue", number, row.next, row.appended_at)
        for number in {**self._done, **self._dead, **self._expired}:
            tallies = (self._done, self._dead, self._expired, self._purged)
            counts = (tally.get(number, 0) for tally in tallies)
            self._tx.run("count_settled", number, *counts)
        for number, partitions in self._lanes.items():
            found = self._tx.row("group", number)
            assert found is not None, "a claim without a group"
            for partition in partitions:
                lanes.refresh(self._tx, group_row(found), partition)

    def _refusal(self, item: Item) -> Exception | None:
        for intake in item.appends:
            row = self._queue(intake.queue)
            if row is None:
                return unknown_queue(f"number {intake.queue}", ())
            assert isinstance(intake, Offer)
            if _differ(intake.settings, row.queue.settings):
                return Outdated()
        return None

    def _queue(self, number: int) -> QueueRow | None:
        if number not in self._queues:
            row = self._queues[number] = find_queue(self._tx, number)
            self._bases[number] = row.next if row is not None else 0
        return self._queues[number]

    # Appending

    def append(self, intake: Intake) -> Answer:
        """Append one block, unless it is known or holds duplicates; its queue must be there."""
        self._queue(intake.queue)
        return self._append(intake)

    def _append(self, intake: Intake) -> Answer:
        if intake.digests is not None:  # whether it is known comes before what it holds
            known = known_answer(self._tx, intake.id)
            if known is not None:
                return known
            found = self._duplicates(intake)
            if found:
                return Answer(found=found)
        return self._add(intake)

    def _add(self, intake: Intake) -> Answer:
        tx, now, count = self._tx, self._now, len(intake.block)
        row = self._queues[intake.queue]
        assert row is not None
        first = intake.queue << SEQUENCE_BITS | row.next
        dropped = intake.dropped
        if not tx.run("add_receipt", intake.id, now, first, count, dropped):
            known = known_answer(tx, intake.id)
            assert known is not None, "a receipt that was in the way"
            return known
        if count:
            last = first + count - 1
            row.next += count
            row.appended_at = max(now, row.appended_at)
            tx.run(
                "add_block", last, count, row.appended_at, len(intake.body), intake.id,
                intake.partition, intake.flows, intake.body,
            )  # fmt: skip
            if (delays := intake.delays) is not None and delays.latest > now:
                tx.run(
                    "add_delayed", intake.queue, delays.latest, last, count, delays.earliest, delays.count,
                    intake.partition, delays.starts,
                )  # fmt: skip
            if intake.digests is not None:
                digests = [(d, first + i) for i, d in enumerate(intake.digests) if d is not None]
                accepted_at = self._accepted(intake)
                waited = (now, None if accepted_at == now else accepted_at, row.born_id)
                tx.many("add_digest", ((*pair, *waited) for pair in digests))
                tx.run("add_digest_block", last, now, b"".join(digest for digest, _ in digests))
        return Answer(first, count, dropped=dropped)

    def _duplicates(self, intake: Intake) -> tuple[tuple[int, int], ...]:
        row = self._queues[intake.queue]
        assert row is not None
        window, accepted_at = dedupe_us(row.queue.settings), self._accepted(intake)
        found = []
        for index, digest in enumerate(intake.digests or ()):
            if digest is not None:
                known = self._tx.row("digest", digest)
                if known is not None and abs(known[2] - accepted_at) < window and known[0] >= row.born_id:
                    found.append((index, known[0]))
        return tuple(found)

    def _accepted(self, intake: Intake) -> int:
        return self._now if intake.accepted_at is None else min(intake.accepted_at, self._now)

    # Settling

    def _settle_all(self, item: Item) -> tuple[int, ...]:
        if not item.settlements and not item.records:
            return ()
        conflicts = tuple(i for i, s in enumerate(item.settlements) if not self._settle(s))
        settled = [s for i, s in enumerate(item.settlements) if s.deferred and i not in conflicts]
        for token, behind in returns_of(settled).items():
            self._send_along(token, behind)
        self._tx.run("add_settled", item.id, self._now, _encode_conflicts(conflicts))
        return conflicts

    def _settle(self, settlement: Settlement) -> bool:
        """Settle one claim; tell whether it is held, and nothing was finished before."""
        row = self._tx.row("held_claim", settlement.token, settlement.group)
        if row is None:
            return False
        first, count, block_last, partition, done = row
        if count != settlement.count:
            return False
        finished = settlement.finished()
        if done is not None and any(bitmap.overlap(done, finished)):
            return False
        done = bitmap.union(done or b"", finished)
        remaining = count - bitmap.count(done)
        self._record(settlement, first, count, block_last, partition)
        if remaining:
            self._tx.run("mark_done", settlement.token, remaining, done)
        else:
            self._tx.run("remove_claim", settlement.token)
            if partition is not None:
                self._lanes.setdefault(settlement.group, {})[partition] = None
        return True

    def _send_along(self, token: int, behind: Behind) -> None:
        """Send back what an ordered queue has left of a claim behind a message that went back, uncounted."""
        row = self._tx.row("left_of_claim", token)
        if row is None:
            return
        group, first, count, block_last, partition, prev_start_time, attempts, done = row
        runs = behind.runs(done, count)
        if not runs:
            return
        for offset, length in runs:
            done = bitmap.union(done, bitmap.of(range(offset, offset + length), count))
            self._tx.run(
                "add_claim", take_tokens(self._tx, 1), group, first + offset, length, length, block_last,
                behind.due_at, behind.due_at, prev_start_time, attempts, None, partition,
            )  # fmt: skip
        remaining = count - bitmap.count(done)
        if remaining:
            self._tx.run("mark_done", token, remaining, done)
        else:
            self._tx.run("remove_claim", token)

    def _record(
        self, settlement: Settlement, first: int, count: int, block_last: int, partition: str | None
    ) -> None:
        tx, group = self._tx, settlement.group
        self._done[group] = self._done.get(group, 0) + bitmap.count(settlement.done)
        if settlement.expired:
            expired = bitmap.count(settlement.expired)
            self._expired[group] = self._expired.get(group, 0) + expired
        if settlement.deferred:
            token = take_tokens(tx, len(settlement.deferred))
            tx.many(
                "add_claim",
                (
                    (
                        token + i, group, first + d.offset, d.count, d.count, block_last, d.due_at,
                        d.due_at, d.prev_start_time, d.attempts, None, partition,
                    )
                    for i, d in enumerate(settlement.deferred)
                ),
            )  # fmt: skip
            letter = tx.value("claim_letter", settlement.token) if count == 1 else None
            if letter is not None:
                tx.run("tie_to_letter", token, letter)
        for death in settlement.dead:
            if self._may_bury(settlement, first + death.offset):
                tx.run(
                    "add_dead_letter", group, first + death.offset, self._now, death.attempts,
                    death.reason, dead_letter_body(death), block_last, partition,
                )  # fmt: skip
        tx.run("add_outcome", group, block_last, self._now, first, count, encode_outcome(settlement))

    def _may_bury(self, settlement: Settlement, message_id: int) -> bool:
        """Count a death, and tell whether its letter is to be kept.

        A message that was handed out again after it had died has only one letter. The one before it is
        replaced; unless that is itself on its way again, when what becomes of it counts.
        """
        tx, group = self._tx, settlement.group
        self._dead.setdefault(group, 0)
        is_out = tx.row("letter_is_out", group, message_id, settlement.token) is not None
        if is_out or tx.value("letter_state", group, message_id) == "dead":
            self._purged[group] = self._purged.get(group, 0) + 1
        else:
            self._dead[group] += 1
        return not is_out


def known_answer(tx: Transaction, block_id: bytes) -> Answer | None:
    """Return what a block id was answered when it was written."""
    row = tx.row("receipt", block_id)
    if row is None:
        return None
    first, count, dropped = row
    return Answer(first, count, known=True, dropped=dropped)


def _differ(seen: QueueSettings, current: QueueSettings) -> bool:
    """Tell whether a block is to be looked at again: what it must be, or whether ids count."""
    return seen is not current and (
        seen.ordered != current.ordered or (seen.dedupe_seconds > 0) != (current.dedupe_seconds > 0)
    )
