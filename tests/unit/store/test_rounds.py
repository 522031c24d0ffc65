"""From whom claims are taken over, and when: outcomes of theirs may wait in a spool."""

from __future__ import annotations

import subprocess
from time import monotonic
from typing import Any, cast

import pytest

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock
from forebay.store import rounds
from forebay.store.process import process_name, spool_of
from forebay.store.rounds import OWNER_LATE_SECONDS, OWNER_SILENT_SECONDS, Rounds

BEGIN = 1_800_000_000_000_000
SPOOL, OTHER = "0123456789abcdef", "fedcba9876543210"


def gone(spool: str = "") -> str:
    """The name of an owner whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    parts = process_name(spool).split("|")
    parts[4] = str(process.pid)
    return "|".join([*parts, "3", "m1"])


class Scene:
    """A log with the owners that claim from it, and one process that looks at them."""

    def __init__(self) -> None:
        self.clock = ManualClock(BEGIN)
        self.log = MemoryLog(clock=self.clock)

    async def retired(self, owner: str, *, spool: str = SPOOL) -> bool:
        """Whether a process with that spool takes over from an owner."""
        name = process_name(spool)
        await self.log.heartbeat(f"{name}|3|m1")
        looks = Rounds(self.log, name, {}, cast("Any", None), shared=False)  # whose windows nobody looks at
        await looks.retire_gone()
        return owner not in {found.name for found in await self.log.owners()}


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks has had the log for long."""
    began = monotonic() - 2 * OWNER_SILENT_SECONDS
    monkeypatch.setattr(rounds, "monotonic", iter([began, *[monotonic()] * 10]).__next__)


def test_a_name_says_which_spool_its_process_has() -> None:
    assert spool_of(process_name(SPOOL)) == SPOOL
    assert spool_of(f"{process_name(SPOOL)}|3|m1") == SPOOL
    assert spool_of(process_name()) == spool_of("valkey/forebay|3|e1") == spool_of("") == ""


async def test_whoever_has_the_spool_now_takes_over_at_once(scene: Scene) -> None:
    owner = gone(SPOOL)
    await scene.log.heartbeat(owner)
    scene.clock.advance(seconds=20)
    assert await scene.retired(owner)


async def test_whoever_starts_on_another_machine_with_the_spool_takes_over_at_once(scene: Scene) -> None:
    parts = process_name(SPOOL).split("|")
    owner = "|".join([parts[0], "elsewhere", *parts[2:], "3", "m1"])
    await scene.log.heartbeat(owner)
    assert await scene.retired(owner)


async def test_after_an_outage_a_process_that_ended_may_still_have_something_to_say(scene: Scene) -> None:
    owner = gone(OTHER)
    await scene.log.heartbeat(owner)
    assert not await scene.retired(owner)


@pytest.mark.usefixtures("long_ago")
async def test_a_process_that_was_cut_off_and_ended_may_still_have_something_to_say(scene: Scene) -> None:
    owner = gone(OTHER)
    await scene.log.heartbeat(owner)
    scene.clock.advance(seconds=OWNER_LATE_SECONDS)
    assert not await scene.retired(owner)


@pytest.mark.usefixtures("long_ago")
async def test_it_is_waited_for_no_longer_than_for_one_that_is_silent(scene: Scene) -> None:
    owner = gone(OTHER)
    await scene.log.heartbeat(owner)
    scene.clock.advance(seconds=OWNER_SILENT_SECONDS)
    assert await scene.retired(owner)


@pytest.mark.usefixtures("long_ago")
async def test_a_process_that_ended_with_the_log_at_hand_has_said_everything(scene: Scene) -> None:
    owner = gone(OTHER)
    await scene.log.heartbeat(owner)
    scene.clock.advance(seconds=OWNER_LATE_SECONDS - 1)
    assert await scene.retired(owner)


async def test_a_process_without_a_spool_has_said_everything(scene: Scene) -> None:
    owner = gone()
    await scene.log.heartbeat(owner)
    assert await scene.retired(owner)
