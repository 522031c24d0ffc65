"""The benchmark of the logs: a smoke run, its verdicts, and the code that drives the contestants."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from benchmarks import pgmq
from benchmarks.drive import AHEAD_MAX, Turn, append_rate, best, cycle_rate, interleave, ratios
from benchmarks.parts.backlog import Filling
from benchmarks.payloads import BATCH, PUSHERS, batches, fresh_ids
from benchmarks.verdict import REQUIREMENTS, Figures, Requirement, exit_status, shortfalls
from tests.servers import PostgresServer, absent

ROOT = Path(__file__).resolve().parents[2]

RATIO = Requirement("append", "ratio", at_least=8.0)
GROWTH = Requirement("backlog", "growth_mb", at_most=50.0)


def test_a_smoke_run_ends_with_all_figures_in_one_line_and_a_status_that_agrees() -> None:
    if "wheel-18" not in PostgresServer.flavours():
        absent("the benchmark needs the wheel of PostgreSQL 18")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log", "--quick", "--only", "append"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert report["quick"] is True
    assert report["machine"]["cores"] >= 1
    figures = report["append"]
    for contestant in ("blocks", "blocks_with_ids", "rows_insert", "rows_copy"):
        assert figures[f"{contestant}_per_second"] > 0
    assert figures["ratio"] == figures["ratio_by_round"][0]
    assert "cycle" not in report
    assert report["shortfalls"] == shortfalls({"append": figures})
    assert done.returncode == exit_status(report["shortfalls"])
    for line in report["shortfalls"]:
        assert f"falls short: {line}" in done.stdout


@pytest.mark.parametrize(
    ("requirement", "value", "met"),
    [
        (RATIO, 8.0, True),
        (RATIO, 12.5, True),
        (RATIO, 7.999, False),
        (RATIO, None, False),
        (RATIO, True, False),
        (RATIO, "fast", False),
        (GROWTH, 50.0, True),
        (GROWTH, -3.0, True),
        (GROWTH, 50.1, False),
    ],
)
def test_a_requirement_is_met_within_its_bound_only(
    requirement: Requirement, value: float | str | None, *, met: bool
) -> None:
    assert requirement.is_met(value) is met


def test_shortfalls_name_the_figure_its_value_and_the_bound() -> None:
    parts: dict[str, Figures] = {"append": {"ratio": 5.25}, "backlog": {"growth_mb": 80.0}}
    assert shortfalls(parts, [RATIO, GROWTH]) == [
        "append: ratio is 5.25, at least 8 is required",
        "backlog: growth_mb is 80, at most 50 is required",
    ]


def test_parts_that_did_not_run_are_not_judged_but_a_missing_figure_is() -> None:
    assert shortfalls({}, [RATIO, GROWTH]) == []
    missed = shortfalls({"append": {}}, [RATIO, GROWTH])
    assert missed == ["append: ratio is not measured, at least 8 is required"]


def test_the_status_is_1_when_anything_falls_short() -> None:
    assert exit_status([]) == 0
    assert exit_status(["append: ratio is 5"]) == 1


def test_the_bounds_are_those_that_were_promised() -> None:
    bounds = {(r.part, r.figure): r.at_least for r in REQUIREMENTS if r.at_least is not None}
    assert bounds["append", "ratio"] == 8.0
    assert bounds["cycle", "ratio"] == 10.0
    assert bounds["idle_in_transaction", "ratio"] == 0.85
    assert bounds["backlog", "postgres_claim_ratio"] == 0.8
    assert bounds["backlog", "sqlite_append_ratio"] == 0.8


def test_ratios_are_taken_round_by_round() -> None:
    rates = {"ours": [100.0, 300.0], "theirs": [50.0, 100.0], "others": [60.0, 70.0]}
    assert ratios(rates, "ours", "theirs") == [2.0, 3.0]
    assert best(rates, ["theirs", "others"]) == "theirs"


async def test_contestants_take_turns_and_each_begins_once() -> None:
    seen: list[str] = []

    def contestant(name: str) -> Turn:
        async def turn(seconds: float) -> float:
            seen.append(name if seconds == 1.0 else "warm-up")
            return 1.0

        return turn

    rates = await interleave({"a": contestant("a"), "b": contestant("b")}, 2, 1.0, no_note)
    assert seen == ["warm-up", "warm-up", "a", "b", "b", "a"]
    assert rates == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


async def test_a_rate_of_appends_counts_every_push_of_every_pusher() -> None:
    turns: list[tuple[int, int]] = []

    async def push(pusher: int, turn: int) -> None:
        turns.append((pusher, turn))
        await asyncio.sleep(0)

    assert await append_rate(push, 0.01) > 0
    assert {pusher for pusher, _ in turns} == set(range(PUSHERS))
    assert len({turn for _, turn in turns}) == len(turns)


@pytest.mark.parametrize("consumers", [1, 3])
async def test_a_cycle_ends_when_all_is_finished_and_pushers_do_not_run_far_ahead(
    consumers: int,
) -> None:
    pending, ahead = 0, 0

    async def push(_pusher: int, _turn: int) -> None:
        nonlocal pending, ahead
        await asyncio.sleep(0)
        pending += BATCH
        ahead = max(ahead, pending)

    async def finish(_consumer: int) -> int:
        nonlocal pending
        taken = min(pending, BATCH)
        pending -= taken
        await asyncio.sleep(0)
        return taken

    assert await cycle_rate(push, finish, consumers, 0.05) > 0
    assert pending == 0
    assert ahead <= AHEAD_MAX + PUSHERS * BATCH


def test_payloads_are_the_same_in_every_run_and_about_200_bytes() -> None:
    (first,), (again,) = batches(1), batches(1)
    assert first == again
    sizes = [len(payload) for payload in first.payloads]
    assert len(sizes) == BATCH
    assert 190 <= sum(sizes) / BATCH <= 210
    assert len(set(fresh_ids() + fresh_ids())) == 2 * BATCH


@pytest.mark.parametrize("messages", [10_000, 200_000, 10_000_000])
def test_a_backlog_has_the_size_that_was_asked_for(messages: int) -> None:
    filling = Filling.of(messages, 50)
    assert filling.messages() == messages
    assert filling.real == 50
    assert (filling.real + filling.small) * BATCH >= min(messages, messages // 5)


async def test_our_equivalent_of_pgmq_runs_the_whole_cycle(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgmq, "_wheel", lambda: None)
    async with pgmq.Pgmq(postgres_dsn, batches(1)) as contestant:
        assert "equivalent" in contestant.source
        assert await contestant.cycle(0.05, readers=2) > 0


@contextmanager
def no_note(_text: str) -> Iterator[None]:
    yield
