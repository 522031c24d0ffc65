"""Seeds of the tests that draw at random: the same ones in every run, new ones in `make soak`.

A test that draws takes the fixture `rng` (a generator) or `seed` (its number). It runs once for each seed
that is listed for it. `FOREBAY_SEED=N` replaces all lists by N: a soak explores that way, and a failure is
repeated that way. When a soak fails, its seed is added to `LISTED` together with the mended code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["LISTED", "SEED_VARIABLE", "repeat_command", "seeds_of"]

SEED_VARIABLE: Final = "FOREBAY_SEED"

USUAL: Final = (1,)
"""The seeds of a test that has none of its own."""

LISTED: Final[Mapping[str, Sequence[int]]] = {
    "tests/spark/test_snapshot.py::test_rounds_are_the_same_as_a_fold_from_nothing": (2, 3),
    "tests/spark/test_snapshot.py::test_a_fold_that_is_killed_goes_on_from_its_checkpoint": (2,),
}
"""More seeds, by the name of the test's file and its function: `tests/chaos/test_x.py::test_y`."""


def seeds_of(test: str, environ: Mapping[str, str] = os.environ) -> Sequence[int]:
    """Give the seeds for which a test runs."""
    if given := environ.get(SEED_VARIABLE):
        return (int(given),)
    return (*USUAL, *LISTED.get(test, ()))


def repeat_command(test: str, environ: Mapping[str, str] = os.environ) -> str:
    """Give the command that runs a test again as it ran, by its id."""
    kept = [
        f"{name}={environ[name]}" for name in ("CI", "HYPOTHESIS_PROFILE", SEED_VARIABLE) if environ.get(name)
    ]
    drawn = [f"--hypothesis-seed={environ[SEED_VARIABLE]}"] if environ.get(SEED_VARIABLE) else []
    return " ".join([*kept, ".venv/bin/python -m pytest", *drawn, f"'{test}'"])
