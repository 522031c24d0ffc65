"""The table of outcomes, and the pauses of what failed."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from forebay.model import Rejected
from forebay.store.values import Task
from forebay.warm.values import Lease
from forebay.work.backoff import gives_up, is_spent, pause_seconds
from forebay.work.outcomes import REASON_MAX, SECOND, Outcomes, Rule, short
from forebay.work.settings import Backoff, BindingSettings
from forebay.work.values import Bury, Done, RetryAfter

NOW = 1_000 * SECOND
STEADY = Backoff(jitter=0)


def task_of(id: int = 1, attempts: int = 0) -> Task:
    lease = Lease(1, "e", 1, 1, 1, 10, attempts, 0, None)
    return Task(id, 1, b"", attempts, 0, 0, None, lease, 0)


def judged(outcome: object, attempts: int = 0, retries_max: int | None = None) -> Outcomes:
    settings = BindingSettings(backoff=STEADY, retries_max=retries_max)
    outcomes = Outcomes()
    Rule(settings, lambda: NOW, lambda: 0.5).apply(outcomes, task_of(1, attempts), outcome)
    return outcomes


@pytest.mark.parametrize(
    ("outcome", "attempts", "retries_max", "expected"),
    [
        (None, 0, None, Outcomes(done=[1])),
        (Done(), 7, 0, Outcomes(done=[1])),
        (RetryAfter(30), 0, None, Outcomes(retried={1: (NOW + 30 * SECOND, "")})),
        (RetryAfter(reason="busy"), 99, None, Outcomes(retried={1: (NOW, "busy")})),
        (RetryAfter(30), 3, 3, Outcomes(buried={"failed 4 times": [1]})),
        (RetryAfter(30, "busy"), 3, 3, Outcomes(buried={"failed 4 times: busy": [1]})),
        (Bury("no such address"), 0, None, Outcomes(buried={"no such address": [1]})),
        (ValueError("bad"), 0, None, Outcomes(retried={1: (NOW + SECOND, "ValueError: bad")})),
        (ValueError("bad"), 3, None, Outcomes(retried={1: (NOW + 8 * SECOND, "ValueError: bad")})),
        (ValueError("bad"), 3, 3, Outcomes(buried={"failed 4 times: ValueError: bad": [1]})),
        (ValueError(), 0, 0, Outcomes(buried={"failed once: ValueError": [1]})),
    ],
)
def test_what_a_handler_says_becomes_what_the_table_says(
    outcome: object, attempts: int, retries_max: int | None, expected: Outcomes
) -> None:
    assert judged(outcome, attempts, retries_max) == expected


def test_of_an_ordered_batch_that_fails_the_first_of_each_partition_counts() -> None:
    def in_partition(id: int, partition: str) -> Task:
        task = task_of(id)
        return msgspec.structs.replace(task, lease=msgspec.structs.replace(task.lease, partition=partition))

    rule, outcomes = Rule(BindingSettings(backoff=STEADY), lambda: NOW, lambda: 0.5), Outcomes()
    tasks = [in_partition(3, "p"), in_partition(1, "p"), in_partition(2, ""), in_partition(4, "")]
    rule.fail(outcomes, tasks, ValueError("bad"))
    back = (NOW + SECOND, "ValueError: bad")
    assert outcomes == Outcomes(retried={1: back, 2: back}, released=[3, 4])


@pytest.mark.parametrize(
    ("outcome", "retries_max", "expected"),
    [
        (None, None, False), (Done(), None, False), (Bury("bad"), None, False), (RetryAfter(0), None, True),
        (RetryAfter(-1), None, True), (3, None, True), (KeyError(), None, True), (KeyError(), 0, False),
    ],
)  # fmt: skip
def test_a_rule_tells_what_comes_back(outcome: object, retries_max: int | None, *, expected: bool) -> None:
    settings = BindingSettings(backoff=STEADY, retries_max=retries_max)
    assert Rule(settings, lambda: NOW, lambda: 0.5).sends_back(task_of(), outcome) is expected


def test_what_is_no_outcome_is_rejected() -> None:
    with pytest.raises(Rejected, match="returned int; return Done"):
        judged(3)


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -5.0, -0.001, 1e12, "30", None, True])
def test_a_time_that_cannot_be_is_rejected(seconds: Any) -> None:
    with pytest.raises(Rejected, match="give seconds, from 0 to a hundred years"):
        judged(RetryAfter(seconds))


def test_tasks_that_die_for_one_reason_are_named_together() -> None:
    outcomes = Outcomes()
    outcomes.bury(1, "x")
    outcomes.bury(2, "x")
    assert outcomes.buried == {"x": [1, 2]}
    assert Outcomes([1], {2: (0, "")}, {3: 0}, {"x": [4]}, [5]).ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 1), (1, 2), (2, 4), (11, 2048), (12, 3600), (10**6, 3600)]
)
def test_pauses_grow_up_to_the_longest(attempts: int, seconds: float) -> None:
    assert pause_seconds(STEADY, attempts, 0.5) == seconds


def test_pauses_are_spread() -> None:
    spread = Backoff(jitter=0.5)
    assert [pause_seconds(spread, 1, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]


def test_without_a_limit_nothing_is_given_up() -> None:
    assert not gives_up(BindingSettings(), 10**9)
    assert gives_up(BindingSettings(retries_max=2), 2)
    assert not gives_up(BindingSettings(retries_max=2), 1)
    assert not is_spent(BindingSettings(), 10**9)
    assert is_spent(BindingSettings(retries_max=2), 3)
    assert not is_spent(BindingSettings(retries_max=2), 2)


def test_reasons_are_what_every_store_takes() -> None:
    assert short("a\0b\ud800") == "ab?"
    assert len(short("x" * 10_000)) == REASON_MAX + 1


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_size": 0},
        {"batch_size": 10_001},
        {"max_processors": -1},
        {"visibility_seconds": 0.0},
        {"visibility_seconds": float("nan")},
        {"handle_seconds_max": 0.0},
        {"handle_seconds_max": float("nan")},
        {"handle_seconds_max": float("inf")},
        {"retries_max": -1},
        {"retries_max": 1 << 31},
    ],
)
def test_settings_that_cannot_work_are_rejected(bad: dict[str, float]) -> None:
    with pytest.raises(Rejected, match="can't be"):
        BindingSettings(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{"initial": 7200.0}, {"factor": 0.5}, {"jitter": 2.0}, {"max": 1e12}])
def test_pauses_that_cannot_work_are_rejected(bad: dict[str, float]) -> None:
    with pytest.raises(Rejected, match="can't be"):
        Backoff(**bad)
