"""What operations do to timers, and what is due: on the log in memory, without a server."""

from __future__ import annotations

from base64 import b64encode

import cramjam
import pytest

from forebay.api.queen.timers import (
    DUE,
    PAYLOAD,
    PAYLOAD_BYTES_MAX,
    SPACE,
    Plan,
    Standing,
    Timer,
    TimerOp,
    check,
    chosen,
    deferred,
    deliver_at,
    fired,
    fresh_entry,
    head_key,
    moment_of,
    payload_of,
    standings,
)
from forebay.log.memory import MemoryLog
from forebay.log.seam import VersionConflict
from forebay.model import TIME_MAX, Rejected, TooLarge

_NOW = 1_700_000_000_000_000


def _timer(key: str = "k", moment: int = _NOW, size: int = 1) -> Timer:
    return Timer(
        queue=1, key=key, entry=fresh_entry(moment), deliver_at=moment, partition="", txn="t", size=size,
        created_at=_NOW,
    )  # fmt: skip


async def _plan(log: MemoryLog, key: str = "k") -> Plan:
    return Plan(await log.records(SPACE, [head_key(1, key)]))


async def _scheduled(log: MemoryLog, timer: Timer, payload: bytes = b"1") -> Standing:
    plan = await _plan(log, timer.key)
    plan.schedule(timer, payload)
    await log.commit(records=plan.records())
    return standings(await log.records(SPACE, [head_key(1, timer.key)]))[timer.entry]


async def _counts(log: MemoryLog) -> list[int]:
    return [len(await log.scan(space)) for space in (SPACE, DUE, PAYLOAD)]


async def test_a_timer_is_three_records_that_come_and_go_together() -> None:
    async with MemoryLog() as log:
        await _scheduled(log, _timer())
        assert await _counts(log) == [1, 1, 1]
        await _scheduled(log, _timer(moment=_NOW + 5))
        assert await _counts(log) == [1, 1, 1]
        plan = await _plan(log)
        assert plan.cancel(1, "k") is not None
        await log.commit(records=plan.records())
        assert await _counts(log) == [0, 0, 0]
        assert (await _plan(log)).cancel(1, "k") is None


async def test_operations_of_one_request_see_each_other() -> None:
    async with MemoryLog() as log:
        plan = await _plan(log)
        assert plan.schedule(_timer(), b"1") is False
        assert plan.schedule(_timer(), b"2") is True
        assert plan.cancel(1, "k") is not None
        assert plan.cancel(1, "k") is None
        assert plan.schedule(_timer(), b"3") is False
        await log.commit(records=plan.records())
        assert await _counts(log) == [1, 1, 1]
        assert (await log.scan(PAYLOAD))[0].value == b"3"


async def test_who_comes_second_changes_nothing_also_when_the_key_is_in_use_again() -> None:
    async with MemoryLog() as log:
        first = await _scheduled(log, _timer())
        await log.commit(records=fired(first))
        with pytest.raises(VersionConflict):
            await log.commit(records=fired(first))
        again = await _scheduled(log, _timer())
        assert again.version == first.version, "or this test shows nothing"
        with pytest.raises(VersionConflict):
            await log.commit(records=fired(first))
        assert await _counts(log) == [1, 1, 1]


async def test_a_plan_on_timers_that_have_changed_is_refused() -> None:
    async with MemoryLog() as log:
        await _scheduled(log, _timer())
        old = await _plan(log)
        await _scheduled(log, _timer())
        old.cancel(1, "k")
        with pytest.raises(VersionConflict):
            await log.commit(records=old.records())
        assert await _counts(log) == [1, 1, 1]


async def test_what_can_not_be_delivered_is_tried_later_with_its_error() -> None:
    async with MemoryLog() as log:
        found = await _scheduled(log, _timer())
        await log.commit(records=deferred(found, b"1", _NOW + 9, "no"))
        assert await _counts(log) == [1, 1, 1]
        (entry,) = await log.scan(DUE)
        assert moment_of(entry.key) == _NOW + 9
        (head,) = await log.records(SPACE, [head_key(1, "k")])
        timer = standings([head])[entry.key].timer
        assert (timer.attempts, timer.last_error, timer.deliver_at) == (1, "no", _NOW)


async def test_what_is_due_comes_in_order_of_time_as_much_as_fits() -> None:
    async with MemoryLog() as log:
        for key, moment, size in (("c", 3, 4), ("a", 1, 50), ("b", 2, 4), ("d", 11, 1)):
            await _scheduled(log, _timer(key, moment, size))
        entries = await log.scan(DUE)
        assert [due.key for _, due in chosen(entries, 10, 1_000)] == ["a", "b", "c"]
        assert [due.key for _, due in chosen(entries, 2, 1_000)] == ["a", "b"]
        assert [due.key for _, due in chosen(entries, 10, 10)] == ["a"]
        assert chosen(entries, 0, 1_000) == []


def _op(**more: object) -> TimerOp:
    return TimerOp(**{"op": "schedule", "queue": "q", "timer_key": "k", "delay_ms": 1, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"op": "fire"}, "op"),
        ({"queue": ""}, "queue"),
        ({"timer_key": ""}, "timerKey"),
        ({"timer_key": "x" * 513}, "timerKey"),
        ({"timer_key": "a\0b"}, "timerKey"),
        ({"delay_ms": None}, "delayMs"),
        ({"delay_ms": 1 << 60}, "delayMs"),
        ({"txn": "x" * 256}, "txn"),
    ],
)
def test_operations_that_can_not_be_done_are_refused(more: dict[str, object], word: str) -> None:
    with pytest.raises((Rejected, TooLarge), match=word):
        check(_op(**more), "timers[0]")


def test_payloads_come_as_base64_packed_or_not() -> None:
    plain, packed = b'{"a":1}', bytes(cramjam.zstd.compress(b"x" * 100_000))
    assert payload_of(_op(payload=b64encode(plain).decode()), "t") == plain
    assert payload_of(_op(payload=b64encode(packed).decode(), payload_zstd=True), "t") == b"x" * 100_000
    assert payload_of(_op(), "t") == b"null"


@pytest.mark.parametrize(
    ("data", "zstd"),
    [
        ("no base64!", False),
        (b64encode(b"x" * (PAYLOAD_BYTES_MAX + 1)).decode(), False),
        (b64encode(b"not zstd").decode(), True),
        (b64encode(bytes(cramjam.zstd.compress(b"x" * (64 << 20)))).decode(), True),
    ],
)
def test_payloads_that_can_not_be_kept_are_refused(data: str, zstd: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with pytest.raises((Rejected, TooLarge), match="payload"):
        payload_of(_op(payload=data, payload_zstd=zstd), "timers[0]")


def test_a_delay_counts_from_now_and_the_past_is_now() -> None:
    assert deliver_at(_op(delay_ms=250), _NOW) == _NOW + 250_000
    assert deliver_at(_op(delay_ms=-5), _NOW) == _NOW
    assert deliver_at(_op(delay_ms=5), TIME_MAX) == TIME_MAX
