"""From whom claims are taken over, and when: outcomes of theirs may wait in a spool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from forebay.disk import RealDisk
from forebay.log.memory import MemoryLog
from forebay.model import Block, ManualClock, Message, mint
from forebay.spool.lines import SpooledBlock, SpooledSettlement
from forebay.spool.names import next_name
from forebay.spool.spool import Spool
from forebay.store import rounds
from forebay.store.process import SpoolPlace, process_name, process_of, spool_folder, spool_of, spool_owner
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

    async def retired(self, owner: str) -> bool:
        """Whether a process with our spool takes over from an owner."""
        name, spool = process_name(SPOOL), SpoolPlace(SPOOL, "/nowhere")
        looks = Rounds(self.log, name, {}, cast("Any", None), shared=False, spool=spool)
        await looks.begin()
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


# Spools that can be looked into


async def spooling(scene: Scene, folder: Path, *, outcomes: int) -> str:
    """An owner whose process has ended, and left so many outcomes in its spool."""
    async with await Spool.open(RealDisk(folder)) as spool:
        if outcomes:
            await spool.append([SpooledSettlement(mint(), b"outcome")] * outcomes, prefix="settle")
        await spool.append([SpooledBlock("orders", Block.of([Message(b"1")]))])
        owner = gone(spool.identity)
    await scene.log.heartbeat([owner, spool_owner(process_of(owner) or "", str(folder))])
    return owner


@pytest.mark.usefixtures("long_ago")
async def test_outcomes_in_a_spool_are_waited_for_however_soon_their_process_ended(
    scene: Scene, tmp_path: Path
) -> None:
    owner = await spooling(scene, tmp_path, outcomes=1)
    assert not await scene.retired(owner)


@pytest.mark.usefixtures("long_ago")
async def test_outcomes_in_a_spool_are_waited_for_no_longer_than_for_one_that_is_silent(
    scene: Scene, tmp_path: Path
) -> None:
    owner = await spooling(scene, tmp_path, outcomes=1)
    scene.clock.advance(seconds=OWNER_SILENT_SECONDS)
    assert await scene.retired(owner)


async def test_nobody_waits_for_a_spool_without_outcomes(scene: Scene, tmp_path: Path) -> None:
    owner = await spooling(scene, tmp_path, outcomes=0)
    assert await scene.retired(owner)
    assert [spool_folder(left.name) for left in await scene.log.owners()] == ["/nowhere"]


async def test_an_outcome_that_was_never_synced_is_none(scene: Scene, tmp_path: Path) -> None:
    owner = await spooling(scene, tmp_path, outcomes=0)
    (tmp_path / str(next_name("settle", ""))).touch()
    assert await scene.retired(owner)


@pytest.mark.parametrize("fault", ["gone", "another"])
async def test_a_spool_that_cant_be_looked_into_may_have_something_to_say(
    scene: Scene, tmp_path: Path, fault: str
) -> None:
    owner = await spooling(scene, tmp_path, outcomes=0)
    if fault == "another":
        (tmp_path / "lock").write_text(OTHER)
    else:
        (tmp_path / "lock").unlink()
    assert not await scene.retired(owner)


@pytest.mark.parametrize("folder", ["/var/lib/forebay/spool", "/a|b/c d%7C", "/\udcff\nü"])
def test_where_a_spool_is_can_be_said_of_every_folder(folder: str) -> None:
    name = process_name(SPOOL)
    owner = spool_owner(name, folder)
    assert owner.isascii()
    assert (spool_folder(owner), process_of(owner), spool_of(owner)) == (folder, name, SPOOL)


@pytest.mark.parametrize("owner", ["", "valkey/forebay|3|e1", "a|b|c|d|e|f|g|spool|h"])
def test_other_owners_say_nothing_of_a_spool(owner: str) -> None:
    assert spool_folder(owner) is None
    assert process_of(owner) is None
    assert spool_folder(f"{process_name(SPOOL)}|3|m1") is None
