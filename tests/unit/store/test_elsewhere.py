"""What the log knows of messages that are out, as tickets, and what goes back with them."""

from __future__ import annotations

from forebay.log.values import Claim, StoredBlock
from forebay.model import bitmap, encode
from forebay.store.elsewhere import late_of, rest_of, tickets_of
from tests.unit.store.claims import FIRST, NOW, block_of, lease_of


def claim_of(*, done: list[int], handed: list[int], token: int = 7) -> Claim:
    """A claim on eight messages of partition p, which became available now."""
    block = block_of()
    stored = StoredBlock(FIRST, 8, block.id, NOW, "p", encode(block))
    bits = bitmap.of(done, 8), bitmap.of(handed, 8)
    return Claim(token, 3, FIRST, 8, *bits, 2, NOW, NOW - 5, stored)


def test_a_ticket_is_for_what_is_asked_for_out_and_unfinished() -> None:
    claim = claim_of(done=[0], handed=[0, 1, 2])
    found = tickets_of([claim], [FIRST + o for o in (0, 1, 3)], NOW, "e")
    assert list(found) == [FIRST + 1]
    lease = found[FIRST + 1].lease
    assert (lease.epoch, lease.claim, lease.first, lease.count) == ("e", 7, FIRST, 8)
    assert (lease.attempts, lease.start_time, lease.prev_start_time) == (2, NOW, NOW - 5)
    assert lease.partition == "p"


def test_a_message_that_came_back_since_has_no_ticket() -> None:
    claim = claim_of(done=[], handed=[1])
    assert tickets_of([claim], [FIRST + 1], NOW - 1, "e") == {}


def test_what_is_finished_or_gone_is_late() -> None:
    lease = lease_of()
    assert late_of({lease: [0, 1, 2]}, [claim_of(done=[1, 5], handed=[])], ()) == {lease: [1]}
    assert late_of({lease: [0, 1]}, [], {7}) == {lease: [0, 1]}
    assert late_of({lease: [0, 1]}, [], ()) == {}


def test_what_is_with_nobody_goes_back_and_counts_nothing() -> None:
    claim = claim_of(done=[0], handed=[1, 2])
    (found,) = rest_of([claim], {"p": (FIRST + 2, NOW + 9)}, {lease_of(): [1, 6]})
    assert [(d.offset, d.count, d.due_at, d.attempts) for d in found.deferred] == [
        (3, 3, NOW + 9, 2), (7, 1, NOW + 9, 2),
    ]  # fmt: skip
    done = claim_of(done=[0, 1, 2, 3], handed=[4, 5, 6, 7])
    assert rest_of([done], {"p": (FIRST + 7, NOW)}, {}) == []


def test_what_is_out_goes_back_where_it_comes_after_what_does() -> None:
    claim = claim_of(done=[0, 5], handed=[1, 2, 3, 4])
    (found,) = rest_of([claim], {"p": (FIRST + 2, NOW + 9)}, {lease_of(): [2]})
    assert [(d.offset, d.count, d.due_at, d.attempts) for d in found.deferred] == [
        (3, 2, NOW + 9, 2), (6, 2, NOW + 9, 2),
    ]  # fmt: skip
