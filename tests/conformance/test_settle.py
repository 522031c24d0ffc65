"""Settling: each message is finished once, by whoever holds it, and the outcome is kept."""

import pytest

from forebay.log.values import Claim, Death, Deferral, Room, Settlement
from forebay.model import Conflict, Message, Rejected, bitmap, mint, pack, sequence_of
from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    append_of,
    bits,
    counts,
    defer,
    drain,
    finish,
    first_texts,
    push,
    stored,
    take,
    take_one,
    unfinished,
)


async def one_claim(rig: Rig, *payloads: str, owner: str = "owner") -> Claim:
    """A claim of one block in a new queue `orders`, for a new group `workers`."""
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *payloads)
    return await take_one(rig.log, group, owner)


async def settle(rig: Rig, *settlements: Settlement, id: bytes | None = None) -> list[int]:
    """Commit settlements; those that came too late."""
    return list((await rig.log.commit(settlements=settlements, id=id)).conflicts)


async def workers(rig: Rig) -> tuple[int, int, int, int, int, int]:
    """What `workers` has ready, held, deferred, done, dead and expired."""
    queue = await rig.log.queue("orders")
    (group,) = await rig.log.groups(queue)
    s = await counts(rig.log, group)
    return s.ready, s.held, s.deferred, s.done, s.dead, s.expired


async def test_done_in_parts_then_wholly(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcd")
    assert await settle(rig, claim.settle(done=bits(claim, 1, 3))) == []
    assert await workers(rig) == (0, 2, 0, 2, 0, 0)
    assert await settle(rig, claim.settle(done=bits(claim, 0, 2))) == []
    assert await workers(rig) == (0, 0, 0, 4, 0, 0)
    assert await settle(rig, claim.settle(done=bits(claim, 0))) == [0]


async def test_done_twice_is_a_conflict_and_counts_once(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcd")
    await settle(rig, claim.settle(done=bits(claim, 0, 1)))
    assert await settle(rig, claim.settle(done=bits(claim, 1, 2))) == [0]
    assert await workers(rig) == (0, 2, 0, 2, 0, 0)


async def test_settlements_of_one_commit_stand_for_themselves(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcd")
    late = claim.settle(done=bits(claim, 0))
    conflicts = await settle(
        rig, late, claim.settle(done=bits(claim, 1)), late, claim.settle(done=bits(claim, 2, 3)), late
    )
    assert conflicts == [2, 4]
    assert await workers(rig) == (0, 0, 0, 4, 0, 0)


async def test_all_kinds_of_outcome_in_one_settlement(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcde")
    due_at = rig.clock.now() + 10 * SECOND
    outcome = claim.settle(
        done=bits(claim, 0),
        expired=bits(claim, 1),
        deferred=(Deferral(2, due_at, 1),),
        dead=(Death(3, "broken", 4, Message(b"d")),),
    )
    assert await settle(rig, outcome) == []
    assert await workers(rig) == (0, 1, 1, 1, 1, 1)
    assert await settle(rig, claim.settle(done=bits(claim, 2))) == [0]
    assert await settle(rig, claim.settle(done=bits(claim, 3))) == [0]
    assert await settle(rig, claim.settle(done=bits(claim, 4))) == []


async def test_after_a_reclaim_the_old_token_changes_nothing(rig: Rig) -> None:
    claim = await one_claim(rig, *"abc", owner="old")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    (taken,) = (await rig.log.reclaim(group, "new", of=["old"])).claims
    assert taken.token != claim.token
    late = claim.settle(
        done=bits(claim, 0),
        deferred=(Deferral(1, rig.clock.now()),),
        dead=(Death(2, "late", 1, Message(b"c")),),
    )
    assert await settle(rig, late) == [0]
    assert await rig.log.mark([claim.mark(handed=bits(claim, 0))]) == [0]
    assert await workers(rig) == (0, 3, 0, 0, 0, 0)
    assert await rig.log.dead_letters(group) == []
    assert list((await rig.log.due(group, "new")).claims) == []
    (again,) = (await rig.log.reclaim(group, "third", of=["new"])).claims
    assert bitmap.count(again.handed) == 0
    await finish(rig.log, again)


async def test_a_token_of_another_group_is_a_conflict(rig: Rig) -> None:
    claim = await one_claim(rig, "a")
    other = await rig.log.create_group(await rig.log.queue("orders"), "other")
    stolen = Settlement(group=other.number, token=claim.token, first=1, count=1, done=b"\x01")
    unknown = Settlement(group=claim.group, token=claim.token + 1000, first=1, count=1, done=b"\x01")
    assert await settle(rig, stolen, unknown) == [0, 1]
    assert (await counts(rig.log, other)).ready == 1
    assert await settle(rig, claim.settle_all()) == []


async def test_a_deferral_comes_back_at_its_time_with_its_history(rig: Rig) -> None:
    claim = await one_claim(rig, *"abc")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    due_at = rig.clock.now() + 30 * SECOND
    back = Deferral(1, due_at, attempts=3, prev_start_time=claim.start_time)
    await settle(rig, claim.settle(done=bits(claim, 0, 2), deferred=(back,)))
    rig.clock.set(due_at - 1)
    assert list((await rig.log.due(group, "owner", ALL)).claims) == []
    rig.clock.set(due_at)
    (taken,) = (await rig.log.due(group, "owner", ALL)).claims
    assert unfinished([taken]) == ["b"]
    assert (taken.first, taken.count, taken.attempts) == (claim.first + 1, 1, 3)
    assert (taken.start_time, taken.prev_start_time) == (due_at, claim.start_time)
    assert list((await rig.log.due(group, "owner", ALL)).claims) == []
    await finish(rig.log, taken)
    assert await workers(rig) == (0, 0, 0, 3, 0, 0)


async def test_a_run_of_deferrals_comes_back_as_one_claim(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcdef")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    now = rig.clock.now()
    runs = (Deferral(1, now + SECOND, 2, 7, 3), Deferral(4, now, 1, None, 2))
    await settle(rig, claim.settle(done=bits(claim, 0), deferred=runs))
    assert await workers(rig) == (0, 0, 5, 1, 0, 0)
    rig.clock.advance(seconds=1)
    claimed = await rig.log.due(group, "owner", ALL)
    assert first_texts(claimed) == [["e", "f"], ["b", "c", "d"]]
    assert [(c.attempts, c.prev_start_time) for c in claimed.claims] == [(1, None), (2, 7)]
    assert await settle(rig, *[c.settle(done=bits(c, 1)) for c in claimed.claims]) == []
    assert await workers(rig) == (0, 3, 0, 3, 0, 0)


async def test_a_deferral_may_be_deferred_again(rig: Rig) -> None:
    claim = await one_claim(rig, *"abc")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    for attempt in range(1, 4):
        due_at = rig.clock.now() + SECOND
        await defer(rig.log, claim, due_at, attempts=attempt, prev=claim.start_time)
        rig.clock.set(due_at)
        started = claim.start_time
        (claim,) = (await rig.log.due(group, "owner", ALL)).claims
        assert (claim.attempts, claim.prev_start_time) == (attempt, started)
        assert unfinished([claim]) == ["a", "b", "c"]


async def test_due_comes_by_time_and_within_room(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    now = rig.clock.now()
    for text, seconds in (("a", 30), ("b", 10), ("c", 20), ("d", 10)):
        await push(rig.log, queue, text, text)
        await defer(rig.log, await take_one(rig.log, group), now + seconds * SECOND)
    rig.clock.advance(seconds=25)
    assert first_texts(await rig.log.due(group, "owner", Room(4))) == [["b", "b"], ["d", "d"]]
    rig.clock.advance(seconds=25)
    assert first_texts(await rig.log.due(group, "owner", Room(1))) == [["c", "c"]]
    assert first_texts(await rig.log.due(group, "owner", Room(9, 1))) == [["a", "a"]]


async def test_due_says_when_the_next_comes(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    other = await rig.log.create_group(queue, "other")
    now = rig.clock.now()
    await push(rig.log, queue, "elsewhere", "elsewhere")
    await defer(rig.log, await take_one(rig.log, other), now + 1)
    await finish(rig.log, await take_one(rig.log, group))
    assert (await rig.log.due(group, "owner")).next_due_at is None
    for text, seconds in (("a", 30), ("b", 10), ("c", 20)):
        await push(rig.log, queue, text, text)
        await defer(rig.log, await take_one(rig.log, group), now + seconds * SECOND)
    claimed = await rig.log.due(group, "owner")
    assert (first_texts(claimed), claimed.next_due_at) == ([], now + 10 * SECOND)
    rig.clock.set(now + 20 * SECOND)
    claimed = await rig.log.due(group, "owner", Room(2))
    assert (first_texts(claimed), claimed.next_due_at) == ([["b", "b"]], now + 20 * SECOND)
    claimed = await rig.log.due(group, "owner", Room(2))
    assert (first_texts(claimed), claimed.next_due_at) == ([["c", "c"]], now + 30 * SECOND)
    rig.clock.set(now + 30 * SECOND)
    claimed = await rig.log.due(group, "owner", Room(2))
    assert (first_texts(claimed), claimed.next_due_at) == ([["a", "a"]], None)
    await rig.log.retire("owner")
    assert (await rig.log.due(group, "new", Room(2))).next_due_at == now + 30 * SECOND
    await push(rig.log, queue, "d")
    assert (await rig.log.claim(group, "new", ALL)).next_due_at is None
    assert (await rig.log.reclaim(group, "third", ALL, of=["new"])).next_due_at is None


async def test_what_waits_for_its_partition_is_due_already(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abc", partition="p")
    claim = await take_one(rig.log, group)
    now = rig.clock.now()
    later = (Deferral(0, now + SECOND), Deferral(1, now))
    await settle(rig, claim.settle(done=bits(claim, 2), deferred=later))
    claimed = await rig.log.due(group, "owner", ALL)
    assert (unfinished(claimed.claims), claimed.next_due_at) == ([], now)
    rig.clock.advance(seconds=1)
    claimed = await rig.log.due(group, "owner", Room(1))
    assert (unfinished(claimed.claims), claimed.next_due_at) == (["a"], now)
    claimed = await rig.log.due(group, "owner", Room(1))
    assert (unfinished(claimed.claims), claimed.next_due_at) == (["b"], None)


async def test_due_gives_each_deferral_to_one_owner(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcdefgh")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    now = rig.clock.now()
    await settle(rig, claim.settle(deferred=tuple(Deferral(n, now) for n in range(8))))
    one = (await rig.log.due(group, "one", Room(3))).claims
    two = (await rig.log.due(group, "two", ALL)).claims
    assert unfinished([*one, *two]) == list("abcdefgh")
    assert len(one) == 3


async def test_dead_letters_keep_the_message_and_the_reason(rig: Rig) -> None:
    claim = await one_claim(rig, *"abc")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    message = Message(b"b", "north", "t1", {"flow": "daily"}, 17)
    rig.clock.advance(seconds=3)
    deaths = (Death(2, "no such customer", 5, Message(b"c")), Death(1, "päng 💥", 1, message))
    await settle(rig, claim.settle(dead=deaths))
    first, second = await rig.log.dead_letters(group)
    assert (first.message_id, first.reason, first.attempts) == (claim.first + 1, "päng 💥", 1)
    assert (first.message(), first.died_at) == (message, rig.clock.now())
    assert (second.message_id, second.attempts) == (claim.first + 2, 5)
    assert await workers(rig) == (0, 1, 0, 0, 2, 0)


async def test_dead_letters_are_paged_by_id(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcde")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    await settle(rig, claim.settle(dead=tuple(Death(n, "r", 1, Message(b"x")) for n in range(5))))
    page = await rig.log.dead_letters(group, limit=2)
    assert [letter.message_id - claim.first for letter in page] == [0, 1]
    rest = await rig.log.dead_letters(group, after=page[-1].message_id)
    assert [letter.message_id - claim.first for letter in rest] == [2, 3, 4]


async def test_dead_letters_outlive_their_block(rig: Rig) -> None:
    claim = await one_claim(rig, "a", "b")
    queue = await rig.log.configure_queue("orders", {"keep_seconds": 1.0})
    group = (await rig.log.groups(queue))[0]
    await settle(rig, claim.settle(done=bits(claim, 0), dead=(Death(1, "r", 1, Message(b"b")),)))
    rig.clock.advance(seconds=10 * DAY)
    await rig.log.trim()
    assert await rig.log.read(queue) == []
    (letter,) = await rig.log.dead_letters(group)
    assert letter.message().payload == b"b"


async def test_the_outcome_log_tells_what_happened(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcd")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    await rig.log.mark([claim.mark(handed=bits(claim, 0))])
    back = Deferral(1, rig.clock.now() + SECOND, 1, 5)
    rig.clock.advance(seconds=1)
    await settle(rig, claim.settle(done=bits(claim, 0), deferred=(back,), worker="one"))
    at = rig.clock.now()
    rig.clock.advance(seconds=1)
    dead = (Death(3, "broken", 2, Message(b"d")),)
    await settle(rig, claim.settle(expired=bits(claim, 2), dead=dead, worker="two"))
    first, second = await rig.log.outcomes(group, claim.first + 2)
    assert (first.first, first.count, first.at, first.worker) == (claim.first, 4, at, "one")
    assert (bitmap.indexes(first.done), first.deferred, first.dead) == ([0], (back,), ())
    assert (bitmap.indexes(second.expired), second.worker) == ([2], "two")
    assert second.dead == ((3, "broken", 2),)
    assert len(await rig.log.outcomes(group, claim.first, limit=1)) == 1


async def test_the_outcome_log_is_kept_by_block_and_group(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    one, other = (
        await rig.log.create_group(queue, "one"),
        await rig.log.create_group(queue, "other"),
    )
    await push(rig.log, queue, "a", "b", "c")
    await push(rig.log, queue, "d")
    (head,) = await take(rig.log, one, room=Room(2))
    await finish(rig.log, head)
    tail, last = await take(rig.log, one)
    await finish(rig.log, tail, last)
    first_block = await rig.log.outcomes(one, tail.first)
    assert [(o.first, o.count) for o in first_block] == [(head.first, 2), (tail.first, 1)]
    assert [o.first for o in await rig.log.outcomes(one, last.first)] == [last.first]
    assert await rig.log.outcomes(other, tail.first) == []
    assert await rig.log.outcomes(one, pack(queue.number, 5)) == []


async def test_a_repeated_commit_answers_the_same_and_counts_once(rig: Rig) -> None:
    claim = await one_claim(rig, *"abcd")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    now, commit_id = rig.clock.now(), mint()
    outcome = claim.settle(
        done=bits(claim, 0),
        deferred=(Deferral(1, now),),
        dead=(Death(2, "r", 1, Message(b"c")),),
    )
    late = Settlement(group=claim.group, token=claim.token + 99, first=1, count=1, done=b"\x01")
    assert await settle(rig, late, outcome, id=commit_id) == [0]
    assert await settle(rig, late, outcome, id=commit_id) == [0]
    assert await workers(rig) == (0, 1, 1, 1, 1, 0)
    assert len(await rig.log.outcomes(group, claim.first)) == 1
    assert await settle(rig, late, outcome, id=mint()) == [0, 1]


async def test_an_id_cannot_serve_both_a_commit_and_its_block(rig: Rig) -> None:
    claim = await one_claim(rig, "a")
    append = append_of(await rig.log.queue("orders"), "b")
    with pytest.raises(Rejected):
        await rig.log.commit([append], [claim.settle_all()], id=append.block.id, atomic=True)
    assert await workers(rig) == (0, 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"done": b"\x00"},
        {"done": b"\x02"},
        {"done": b"\x01\x00"},
        {"deferred": (Deferral(1, 5),)},
        {"deferred": (Deferral(0, 5, count=2),)},
        {"deferred": (Deferral(-1, 5),)},
        {"deferred": (Deferral(0, 5, count=0),)},
        {"dead": (Death(1, "r", 1, Message(b"")),)},
        {"done": b"\x01", "expired": b"\x01"},
        {"done": b"\x01", "deferred": (Deferral(0, 5),)},
        {"done": b"\x01", "dead": (Death(0, "r", 1, Message(b"")),)},
        {"deferred": (Deferral(0, 5), Deferral(0, 6))},
    ],
)
async def test_a_settlement_that_makes_no_sense_is_rejected(rig: Rig, wrong: dict[str, object]) -> None:
    claim = await one_claim(rig, "a")
    settlement = Settlement(group=claim.group, token=claim.token, first=1, count=1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(Rejected):
        await settle(rig, settlement)
    assert await workers(rig) == (0, 1, 0, 0, 0, 0)
    assert await settle(rig, claim.settle_all()) == []


async def test_an_atomic_commit_pushes_and_settles_together(rig: Rig) -> None:
    claim = await one_claim(rig, "a", "b")
    queue = await rig.log.create_queue("results")
    group = await rig.log.create_group(queue, "readers")
    append, commit_id = append_of(queue, "x", "y"), mint()
    for known in (False, True):
        receipt = await rig.log.commit([append], [claim.settle_all()], id=commit_id, atomic=True)
        assert [sequence_of(i) for i in receipt.appended[0].ids()] == [1, 2]
        assert receipt.appended[0].known is known
        assert list(receipt.conflicts) == []
    assert await workers(rig) == (0, 0, 0, 2, 0, 0)
    assert await drain(rig.log, group) == ["x", "y"]


async def test_an_atomic_commit_with_duplicates_is_still_whole(rig: Rig) -> None:
    claim = await one_claim(rig, "a")
    queue = await rig.log.create_queue("results")
    await push(rig.log, queue, "x", transaction_ids=["t1"])
    append = append_of(queue, "x", "y", transaction_ids=["t1", "t2"])
    receipt = await rig.log.commit([append], [claim.settle_all()], id=mint(), atomic=True)
    assert [sequence_of(i) for i in receipt.appended[0].ids()] == [1, 2]
    assert await stored(rig.log, queue) == ["x", "y"]
    assert await workers(rig) == (0, 0, 0, 1, 0, 0)


async def test_an_atomic_commit_that_comes_too_late_writes_nothing(rig: Rig) -> None:
    claim = await one_claim(rig, "a", "b", owner="old")
    other = await one_claim_of(rig, "second")
    group = (await rig.log.groups(await rig.log.queue("orders")))[0]
    queue = await rig.log.create_queue("results")
    append = append_of(queue, "x", transaction_ids=["t1"])
    await rig.log.reclaim(group, "new", of=["old"])
    with pytest.raises(Conflict):
        await rig.log.commit([append], [other.settle_all(), claim.settle_all()], id=mint(), atomic=True)
    assert await stored(rig.log, queue) == []
    assert await workers(rig) == (0, 2, 0, 0, 0, 0)
    (answer,) = (await rig.log.commit([append], [other.settle_all()], atomic=True)).appended
    assert not answer.known
    assert await stored(rig.log, queue) == ["x"]


async def one_claim_of(rig: Rig, name: str) -> Claim:
    """A claim of one message in a queue of another name."""
    queue = await rig.log.create_queue(name)
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "z")
    return await take_one(rig.log, group, "steady")


async def test_a_commit_that_is_not_atomic_pushes_though_a_settlement_is_late(rig: Rig) -> None:
    claim = await one_claim(rig, "a")
    queue = await rig.log.create_queue("results")
    await finish(rig.log, claim)
    receipt = await rig.log.commit([append_of(queue, "x")], [claim.settle_all()])
    assert list(receipt.conflicts) == [0]
    with pytest.raises(Conflict):
        receipt.raise_for_conflicts()
    assert await stored(rig.log, queue) == ["x"]
