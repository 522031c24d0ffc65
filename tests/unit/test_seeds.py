"""Tests that draw run with listed seeds, and a failure says how to repeat it."""

import pytest

from tests import seeds
from tests.seeds import repeat_command, seeds_of

TEST = "tests/chaos/test_x.py::test_y"


def test_a_test_runs_with_the_usual_seed_and_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LISTED", {TEST: (7, 8)})
    assert seeds_of(TEST, {}) == (1, 7, 8)
    assert seeds_of("tests/chaos/test_x.py::test_z", {}) == (1,)


def test_a_seed_in_the_environment_replaces_those_that_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LISTED", {TEST: (7, 8)})
    assert seeds_of(TEST, {"FOREBAY_SEED": "42"}) == (42,)


def test_a_failure_is_repeated_in_the_same_environment() -> None:
    environ = {"CI": "true", "FOREBAY_SEED": "42", "LANG": "C"}
    assert repeat_command(f"{TEST}[a b]", environ) == (
        "CI=true FOREBAY_SEED=42 .venv/bin/python -m pytest --hypothesis-seed=42 "
        "'tests/chaos/test_x.py::test_y[a b]'"
    )
    assert repeat_command(TEST, {}) == f".venv/bin/python -m pytest '{TEST}'"


def test_the_seed_of_this_very_test_is_in_its_name(seed: int, request: pytest.FixtureRequest) -> None:
    assert request.node.name.endswith(f"[seed-{seed}]")
