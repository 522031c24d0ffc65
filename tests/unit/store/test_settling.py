"""What workers say of their tasks, as settlements: the table of attempts."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from forebay.log.claiming import decode_outcome, encode_outcome
from forebay.log.values import Deferral, QueueSettings
from forebay.model import Flow, Message, Rejected, bitmap
from forebay.store.giving_up import is_last, last_words, without_start
from forebay.store.settling import Ballot, Verdict, expiry_of, settlement_of, withdrawal_of
from forebay.store.values import Retry, Task
from forebay.warm.values import Leased, Parcel
from tests.unit.store.claims import FIRST, NOW, block_of, lease_of, task_of

FREE, LIMITED = QueueSettings(), QueueSettings(retries_max=2)


def piece_of(*places: int, worker: str = "w", attempts: int = 0) -> Leased:
    """A lease on some places of a parcel that begins at offset 2 of its claim."""
    block = block_of(*[Message(b"%d" % i, "p", start_time=NOW) for i in range(4)])
    parcel = Parcel(7, FIRST, 8, [2, 3, 5, 6], 4, Flow(), "p", attempts, NOW, NOW, NOW - 3, block)
    return Leased(lease_of(attempts=attempts), parcel, places, worker, NOW, NOW)


def test_done_is_a_bitmap() -> None:
    found = settlement_of(lease_of(), Verdict(done=[0, 3, 3], worker="w"), NOW, FREE)
    assert (bitmap.indexes(found.done), found.deferred, found.dead) == ([0, 3], (), ())
    assert (found.group, found.token, found.first, found.count, found.worker) == (3, 7, FIRST, 8, "w")


def test_a_retry_counts_and_runs_of_one_time_stay_together() -> None:
    lease = lease_of(attempts=1)
    times = {5: NOW + 9, 1: NOW + 5, 2: NOW + 5, 3: NOW + 9, 4: NOW + 9}
    verdict = Verdict(retried={o: Retry(task_of(o, lease), at) for o, at in times.items()})
    assert settlement_of(lease, verdict, NOW, FREE).deferred == (
        Deferral(1, NOW + 5, 2, NOW, 2), Deferral(3, NOW + 9, 2, NOW, 3),
    )  # fmt: skip


def test_what_comes_back_keeps_its_reason() -> None:
    lease = lease_of(attempts=1)
    said = {1: "busy", 2: "busy", 3: "", 4: "gone"}
    retried = {o: Retry(task_of(o, lease), NOW, reason=reason) for o, reason in said.items()}
    verdict = Verdict(retried=retried, postponed={6: Retry(task_of(6, lease), NOW, False, "late")}, code=503)
    found = settlement_of(lease, verdict, NOW, FREE)
    assert [(d.offset, d.count, d.attempts, d.reason) for d in found.deferred] == [
        (1, 2, 2, "busy"), (3, 1, 2, ""), (4, 1, 2, "gone"), (6, 1, 1, "late"),
    ]  # fmt: skip
    assert found.code == 503
    assert decode_outcome(FIRST, NOW, 8, encode_outcome(found)).deferred == found.deferred


def test_an_entry_of_an_older_version_has_neither_reason_nor_code() -> None:
    older = msgspec.msgpack.encode([b"", b"", [[1, NOW, 2, None, 1]], [], "w"])
    found = decode_outcome(FIRST, NOW, 8, older)
    assert (found.deferred, found.code) == ((Deferral(1, NOW, 2),), 0)


def test_a_release_counts_nothing_and_keeps_what_was() -> None:
    lease = msgspec.structs.replace(lease_of(attempts=1), prev_start_time=NOW - 7)
    verdict = Verdict(released=[2, 0, 1])
    assert settlement_of(lease, verdict, NOW + 1, LIMITED).deferred == (Deferral(0, NOW + 1, 1, NOW - 7, 3),)


@pytest.mark.parametrize(("attempts", "dies"), [(0, False), (1, False), (2, True), (5, True)])
def test_a_retry_over_the_limit_is_a_dead_letter(attempts: int, *, dies: bool) -> None:
    lease = lease_of(attempts=attempts)
    found = settlement_of(
        lease, Verdict(retried={4: Retry(task_of(4, lease), NOW, reason="busy")}), NOW, LIMITED
    )
    assert bool(found.dead) is dies
    assert bool(found.deferred) is not dies
    if dies:
        (death,) = found.dead
        assert (death.offset, death.attempts, death.reason) == (
            4,
            attempts + 1,
            f"failed {attempts + 1} times: busy",
        )
        assert death.message == Message(b"4", "p")


def test_a_burial_counts_no_attempt() -> None:
    lease = lease_of(attempts=1)
    (death,) = settlement_of(lease, Verdict(dead={1: ("bad", task_of(1, lease))}), NOW, FREE).dead
    assert (death.offset, death.reason, death.attempts) == (1, "bad", 1)


def test_an_expired_lease_counts() -> None:
    found = expiry_of(piece_of(0, 1, 3), NOW + 60, FREE)
    assert found.deferred == (
        Deferral(2, NOW + 60, 1, NOW, 2, "no answer"), Deferral(6, NOW + 60, 1, NOW, 1, "no answer"),
    )  # fmt: skip
    assert found.worker == "w"


def test_a_lease_of_nobody_that_expires_counts_nothing() -> None:
    found = expiry_of(piece_of(0, worker="", attempts=2), NOW + 60, LIMITED)
    assert found.deferred == (Deferral(2, NOW + 60, 2, NOW - 3),)


def test_the_last_lease_that_expires_is_the_end() -> None:
    found = expiry_of(piece_of(1, 2, attempts=2), NOW, LIMITED)
    assert [(d.offset, d.attempts, d.message) for d in found.dead] == [
        (3, 3, Message(b"1", "p")), (5, 3, Message(b"2", "p")),
    ]  # fmt: skip
    assert found.dead[0].reason == "failed 3 times: no answer"


def test_what_is_withdrawn_comes_again_as_it_was() -> None:
    assert withdrawal_of(piece_of(0, attempts=1), NOW + 9).deferred == (Deferral(2, NOW + 9, 1, NOW - 3),)


def test_a_ballot_sorts_by_group_and_lease() -> None:
    one, other = lease_of(), lease_of(attempts=1)
    third = msgspec.structs.replace(one, group=9)
    ballot = Ballot("w")
    ballot.done([task_of(0, lease) for lease in (one, other, third, one)])
    assert {g: [v.done for v in leases.values()] for g, leases in ballot.verdicts.items()} == {
        3: [[0, 0], [0]], 9: [[0]],
    }  # fmt: skip
    with pytest.raises(Rejected, match="5 is no task"):
        ballot.done([cast("Task", 5)])


def test_a_verdict_on_some_is_about_them_alone() -> None:
    lease = lease_of()
    tasks = [task_of(o, lease) for o in range(4)]
    verdict = Verdict([0], {1: Retry(tasks[1], NOW)}, [2], {3: ("bad", tasks[3])}, "w")
    assert verdict.only([0, 1, 2, 3]) is verdict
    assert verdict.only([0, 3]).offsets() == [0, 3]
    assert verdict.back(lease, FREE) == [1, 2]
    assert not verdict.only([0, 3]).back(lease, FREE)
    assert verdict.without_released().offsets() == [0, 1, 3]


def test_without_a_limit_nothing_is_the_last() -> None:
    assert not is_last(1_000_000, FREE)
    assert [is_last(n, LIMITED) for n in (1, 2, 3)] == [False, True, True]
    assert [last_words(n, said) for n, said in ((0, ""), (1, "busy"))] == [
        "failed once",
        "failed 2 times: busy",
    ]
    assert without_start(Message(b"x", "p", "t", {"a": "b"}, 5)) == Message(b"x", "p", "t", {"a": "b"})
