"""Dead letters go back to their queue under their ids, or away for good; a crash loses none."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from forebay.deliver.dead_letters import DeadLetter, DeadLetters, KeptLetter, LetterChoice, letters_of
from forebay.deliver.entry_data import decode_request, encode_request, id_of, redriven_data
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.failure import of_status
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.redrive import LetterJob, LetterStep, run_job
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import sizes
from forebay.deliver.storage import FastBacking, fast_settings
from forebay.deliver.values import Request
from forebay.fastqueue.queue import FastQueue
from forebay.model import Full, ManualClock, Unavailable
from tests.disks import SimulatedDisk
from tests.unit.deliver.queues import QueueRig, a_queue
from tests.unit.deliver.test_delivery import a_delivery

CLOCK = ManualClock(1_700_000_000_000_000)


def a_letter(name: str, *, reason: str = "the destination answered 400", id: str | None = None) -> bytes:
    request = encode_request(Request(b"POST", b"/x", (), name.encode()))
    letter = DeadLetter(
        buried_at_us=1, enqueued_at_us=1, attempts=1, error_class="client_error", status=400, reason=reason,
        answer=b"", data=request, id=name if id is None else id,
    )  # fmt: skip
    return msgspec.msgpack.encode(letter)


async def run(queue: SendQueue, verb: Literal["redrive", "purge"], **said: Any) -> list[LetterStep]:
    dry_run = said.pop("dry_run", False)
    job = LetterJob(verb=verb, choice=LetterChoice(**said), dry_run=dry_run)
    return [step async for step in run_job(queue, job)]


def ids(steps: list[LetterStep]) -> list[str]:
    return [id for step in steps for id in step.ids]


def kept(rig: QueueRig) -> list[str]:
    rig.dead_backing.unread(0)
    return [letter.id for letter in letters_of(rig.dead_backing)]


async def test_all_letters_are_queued_again_in_order_under_their_ids() -> None:
    async with a_queue(inmemory_blocks=4096) as rig:
        names = [f"r{number:04d}" for number in range(600)]
        rig.dead.add([a_letter(name) for name in names])
        steps = await run(rig.queue, "redrive")
        assert ids(steps) == names
        assert {step.total for step in steps} == {600}
        assert sum(step.looked for step in steps) == 600
        assert (kept(rig), rig.queue.dead_count, rig.queue.size) == ([], 0, 600)
        entries = [await rig.queue.take() for _ in names]
        assert [id_of(entry.sequence, entry.data) for entry in entries] == names
        assert [decode_request(entry.data).body.decode() for entry in entries] == names


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        pytest.param({"ids": frozenset({"b", "none"})}, ["b"], id="by-id"),
        pytest.param({"reason": "401"}, ["c"], id="by-reason"),
        pytest.param({"ids": frozenset({"a"}), "reason": "401"}, [], id="by-both"),
    ],
)
@pytest.mark.parametrize("verb", ["redrive", "purge"])
async def test_only_what_is_meant_is_changed(
    said: dict[str, Any], chosen: list[str], verb: Literal["redrive", "purge"]
) -> None:
    async with a_queue() as rig:
        rig.dead.add([a_letter("a"), a_letter("b"), a_letter("c", reason="answered 401")])
        assert ids(await run(rig.queue, verb, dry_run=True, **said)) == chosen
        assert (kept(rig), rig.queue.size) == (["a", "b", "c"], 0)
        assert ids(await run(rig.queue, verb, **said)) == chosen
        assert kept(rig) == [name for name in "abc" if name not in chosen]
        assert rig.queue.size == (len(chosen) if verb == "redrive" else 0)


async def test_a_letter_of_an_early_version_is_named_by_its_place() -> None:
    async with a_queue() as rig:
        rig.dead.add([a_letter("a", id=""), b"not a letter at all", a_letter("b", id="")])
        assert ids(await run(rig.queue, "redrive", ids=frozenset({"dead-2"}))) == ["dead-2"]
        assert (kept(rig), rig.queue.dead_count) == (["dead-0"], 2)


async def test_a_redrive_drops_nothing_and_leaves_room_for_pushes() -> None:
    async with a_queue(max_size=10, full_behavior="drop_oldest") as rig:
        for _ in range(5):
            await rig.queue.push(b"x")
        rig.dead.add([a_letter(name) for name in "abcdef"])
        with pytest.raises(Full, match="80%"):
            await run(rig.queue, "redrive")
        assert rig.queue.size == 8
        assert kept(rig) == ["d", "e", "f"]
        assert not rig.queue.dropped


async def test_letters_that_are_buried_meanwhile_are_left_alone() -> None:
    async with a_delivery() as rig:
        rig.destination.answer = lambda _: of_status(400)
        rig.dead.add([a_letter(f"{number}") for number in range(300)])
        await run(rig.queue, "redrive")
        await rig.empty()
        assert len(rig.destination.ids) == 300
        assert sorted(kept(rig)) == sorted(rig.destination.ids)


async def test_the_oldest_letters_still_make_room_after_a_job() -> None:
    backing = MemoryBacking(lambda: 0)
    letters = DeadLetters(backing, size_max=3)
    letters.add([a_letter(name) for name in "abcd"])
    page, _ = letters.page(0)
    letters.remove([one.sequence for one in page if one.id == "c"])
    letters.add([a_letter(name) for name in "ef"])
    backing.unread(0)
    assert [one.id for one in letters_of(backing)] == ["d", "e", "f"]


async def test_a_disk_that_refuses_keeps_the_letters() -> None:
    async with a_queue(durability="interval") as rig:
        rig.dead.add([a_letter("a")])
        rig.backing.error = Full("no space left")
        with pytest.raises(Unavailable, match="letters stay"):
            await run(rig.queue, "redrive")
        assert kept(rig) == ["a"]
        rig.backing.error = None


def test_bytes_that_arent_a_request_are_redriven_as_they_are() -> None:
    assert redriven_data(b"\x95garbage", "7") == b"\x95garbage"
    assert id_of(3, b"\x95garbage") == "3"
    assert id_of(3, b"") == "3"


SETTINGS = SendQueueSettings(chunk_size=1 << 12).resolve()


def on_disks(disks: tuple[SimulatedDisk, SimulatedDisk], settings: SendQueueSettings) -> SendQueue:
    fast = fast_settings(settings, memory_bytes=1 << 16)
    always = msgspec.structs.replace(fast, durability="always")
    queue, dead = (
        FastBacking(FastQueue.open(disk, each, clock=CLOCK.now))
        for disk, each in zip(disks, (fast, always), strict=True)
    )
    found = sizes(settings, memory_limit=None, disk_bytes=None)
    return SendQueue(queue, DeadLetters(dead), settings, found, clock=CLOCK.now)


def bodies(disk: SimulatedDisk, read: Callable[[bytes], bytes]) -> list[str]:
    queue = FastQueue.open(disk, fast_settings(SETTINGS, memory_bytes=1 << 16), clock=CLOCK.now)
    try:
        return [decode_request(read(record.data)).body.decode() for record in queue.read(1000, 1 << 30)]
    finally:
        queue.close()


def data_of(letter: bytes) -> bytes:
    return msgspec.msgpack.decode(letter, type=DeadLetter).data


@pytest.mark.parametrize("durability", ["always", "interval", "memory"])
async def test_a_crash_at_any_step_of_a_redrive_loses_no_letter(durability: Any) -> None:
    names = [f"r{number}" for number in range(20)]
    disks = SimulatedDisk(seed=1), SimulatedDisk(seed=2)
    queue = on_disks(disks, msgspec.structs.replace(SETTINGS, durability=durability))
    await asyncio.to_thread(queue.dead_letters.add, [a_letter(name) for name in names])
    moments: list[tuple[SimulatedDisk, SimulatedDisk]] = []
    for disk in disks:
        watch(disk, lambda: moments.append((disks[0].after_crash(), disks[1].after_crash())))
    await run(queue, "redrive")
    moments.append((disks[0].after_crash(), disks[1].after_crash()))
    await queue.close()
    both = 0
    for left, dead in moments:
        found = bodies(left, bytes), bodies(dead, data_of)
        assert {*found[0], *found[1]} == set(names)
        both += bool(set(found[0]) & set(found[1]))
    assert both, "a letter is removed only after its entry is there"
    assert bodies(moments[-1][1], data_of) == []


def watch(disk: SimulatedDisk, look: Callable[[], object]) -> None:
    step = disk.step

    def looked(act: Callable[[], None], partly: Callable[[], None] | None = None) -> None:
        step(act, partly)
        look()

    disk.step = looked  # type: ignore[method-assign]


def test_a_choice_of_all_has_every_letter() -> None:
    letter = msgspec.msgpack.decode(a_letter("a"), type=DeadLetter)
    assert LetterChoice().has(KeptLetter(1, letter))
