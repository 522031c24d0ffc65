"""The spool on a real disk, and with many writers at once."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.model import Block, Full, Message, Misconfigured, Unavailable, mint
from forebay.spool.checking import list_files
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement
from forebay.spool.names import FileName
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import Spool
from tests.disks import SimulatedDisk

HOURS = SpoolSettings(file_seconds_max=3600.0)


def block_of(size: int = 1) -> SpooledBlock:
    return SpooledBlock("orders", Block.of([Message(b"{}", "p", f"t{n}") for n in range(size)]))


def entries(spool: Spool) -> list[Spooled]:
    return [
        found.entry
        for name in spool.reader.files()
        for found in spool.reader.read(name, events_max=10**6).found
    ]


async def test_what_was_appended_is_read_after_a_flush_and_gone_when_done(tmp_path: Path) -> None:
    async with await Spool.open(RealDisk(tmp_path / "spool"), HOURS) as spool:
        written: list[Spooled] = [block_of(3), SpooledSettlement(mint(), b"\x00")]
        await spool.append(written)
        assert entries(spool) == []
        await spool.flush()
        assert entries(spool) == written
        (name,) = spool.reader.files()
        assert spool.reader.count(name) == 4
        spool.reader.done(name)
        assert entries(spool) == []


async def test_closing_finishes_the_file_and_a_second_process_is_refused_until_then(tmp_path: Path) -> None:
    spool = await Spool.open(RealDisk(tmp_path), HOURS)
    with pytest.raises(Misconfigured, match="another process uses the spool folder"):
        await Spool.open(RealDisk(tmp_path))
    await spool.append([block_of()])
    await spool.close()
    await spool.close()
    with pytest.raises(Unavailable, match="closed"):
        await spool.append([block_of()])
    async with await Spool.open(RealDisk(tmp_path), HOURS) as again:
        assert len(entries(again)) == 1


async def test_a_file_is_finished_when_it_is_old_without_being_asked(tmp_path: Path) -> None:
    loop, finished = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: FileName) -> None:
        loop.call_soon_threadsafe(finished.set)

    settings = SpoolSettings(file_seconds_max=0.01)
    async with await Spool.open(RealDisk(tmp_path), settings, finished=tell) as spool:
        await spool.append([block_of()])
        await asyncio.wait_for(finished.wait(), 10)
        assert len(entries(spool)) == 1


async def test_a_file_is_finished_when_it_is_full(tmp_path: Path) -> None:
    settings = SpoolSettings(file_seconds_max=3600.0, events_per_file=10)
    async with await Spool.open(RealDisk(tmp_path), settings) as spool:
        written = [block_of(4) for _ in range(6)]
        for block in written:
            await spool.append([block])
        await spool.flush()
        assert [spool.reader.count(name) for name in spool.reader.files()] == [8, 8, 8]
        assert entries(spool) == written
        await spool.append([block_of(25)])
        assert spool.reader.count(spool.reader.files()[-1]) == 25


class CountingDisk(SimulatedDisk):
    """Counts syncs, and can hold them up."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.reached = threading.Event()

    def free_bytes(self) -> int:
        self.reached.set()
        self.gate.wait(10)
        return super().free_bytes()


async def test_appends_that_come_together_share_a_sync_and_keep_their_order() -> None:
    disk = CountingDisk()
    async with await Spool.open(disk, HOURS) as spool:
        written = [block_of() for _ in range(50)]
        tasks = [asyncio.create_task(spool.append([block])) for block in written]
        await asyncio.to_thread(disk.reached.wait, 10)
        steps = disk.steps
        disk.gate.set()
        await asyncio.gather(*tasks)
        assert disk.steps - steps <= 6  # create, sync the folder, and twice append and sync
        await spool.flush()
        assert entries(spool) == written


async def test_a_sync_that_fails_once_costs_nothing_but_the_file() -> None:
    disk = SimulatedDisk()
    async with await Spool.open(disk, HOURS) as spool:
        written = [block_of(), block_of()]
        await spool.append(written[:1])
        disk.failing_syncs = 1
        await spool.append(written[1:])
        assert len(spool.reader.files()) == 1
        await spool.flush()
        assert len(spool.reader.files()) == 2
        assert entries(spool) == written


async def test_a_disk_that_fails_twice_acknowledges_nothing_and_then_goes_on() -> None:
    disk = SimulatedDisk()
    async with await Spool.open(disk, HOURS) as spool:
        disk.failing_syncs = 2
        with pytest.raises(Unavailable, match="Input/output error"):
            await spool.append([block_of()])
        block = block_of()
        await spool.append([block])
        await spool.flush()
        assert entries(spool) == [block]


async def test_a_full_disk_refuses_blocks_settles_from_the_reserve_and_recovers_with_the_space() -> None:
    disk = SimulatedDisk(capacity=100_000)
    settings = SpoolSettings(file_seconds_max=3600.0, reserve_bytes=10_000)
    async with await Spool.open(disk, settings) as spool:
        first = block_of()
        await spool.append([first])
        disk.capacity -= disk.free_bytes()
        with pytest.raises(Full, match="No space left"):
            await spool.append([block_of()])
        settlement = SpooledSettlement(mint(), b"done")
        await spool.append([settlement])
        with pytest.raises(Full):
            await spool.append([block_of()])
        disk.capacity = 100_000
        last = block_of()
        await spool.append([last])
        await spool.flush()
        assert entries(spool) == [first, settlement, last]


async def test_what_waits_is_bounded() -> None:
    disk = CountingDisk()
    settings = SpoolSettings(file_seconds_max=3600.0, waiting_bytes_max=1_000)
    async with await Spool.open(disk, settings) as spool:
        writing = asyncio.create_task(spool.append([block_of()]))
        await asyncio.to_thread(disk.reached.wait, 10)
        waiting = asyncio.create_task(spool.append([block_of(3)]))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="waiting to be spooled already"):
            await spool.append([block_of(3)])
        disk.gate.set()
        await asyncio.gather(writing, waiting)


async def test_the_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Misconfigured, match="can't be used"):
        await Spool.open(RealDisk(tmp_path / "file" / "spool"))


async def test_files_of_both_kinds_are_read_in_the_order_of_their_age(tmp_path: Path) -> None:
    async with await Spool.open(RealDisk(tmp_path), HOURS) as spool:
        first, second = block_of(), block_of()
        await spool.append([first], prefix="qos0")
        await spool.append([second])
        await spool.flush()
        assert [name.prefix for name in spool.reader.files()] == ["qos0", "failover"]
        assert entries(spool) == [first, second]


def used(disk: SimulatedDisk) -> tuple[int, int]:
    """How many bytes all files have, and how many of them hold events."""
    paths = [*disk.list(), *(f"failed/{name}" for name in disk.list("failed"))]
    return sum(len(disk.content(path)) for path in paths), len(list_files(disk))


async def test_what_the_files_take_is_known_without_looking() -> None:
    disk = SimulatedDisk()
    async with await Spool.open(disk, HOURS) as spool:
        assert (spool.bytes, spool.file_count) == (0, 0)
        for prefix in ("failover", "qos0", "settle"):
            await spool.append([block_of(3)], prefix=prefix)
            await spool.append([block_of(2)], prefix=prefix)
            assert (spool.bytes, spool.file_count) == used(disk)
        await spool.flush()
        assert (spool.bytes, spool.file_count) == used(disk)
        first, second, _ = spool.reader.files()
        disk.flip(str(first), 10)
        page = spool.reader.read(first)
        spool.reader.refuse(first, page.found[1:], "no such queue")
        assert (spool.bytes, spool.file_count) == used(disk)
        for name, failed in ((first, False), (first, True), (second, False), (second, False)):
            spool.reader.done(name, failed=failed)
            assert (spool.bytes, spool.file_count) == used(disk)
    async with await Spool.open(disk, HOURS) as again:
        assert (again.bytes, again.file_count) == used(disk)
        assert again.file_count == 1


async def test_a_failed_sync_leaves_the_right_size() -> None:
    disk = SimulatedDisk()
    async with await Spool.open(disk, HOURS) as spool:
        for syncs in (0, 1, 2):
            disk.failing_syncs = syncs
            with suppress(Unavailable):
                await spool.append([block_of()])
            assert (spool.bytes, spool.file_count) == used(disk)


async def test_a_spool_that_has_what_it_may_have_refuses_blocks_but_settles() -> None:
    disk = SimulatedDisk()
    settings = SpoolSettings(file_seconds_max=3600.0, total_bytes_max=5_000)
    async with await Spool.open(disk, settings) as spool:
        kept = list[Spooled]()
        results = await asyncio.gather(
            *(spool.append([block_of(3)]) for _ in range(20)), return_exceptions=True
        )
        assert 4_000 < spool.bytes <= 5_000
        refused = [result for result in results if result is not None]
        assert refused
        assert all(isinstance(result, Full) and "5000 bytes" in result.message for result in refused)
        assert results == sorted(results, key=lambda result: result is not None), "a later one took the room"
        settlement = SpooledSettlement(mint(), b"x" * 2_000)
        both = await asyncio.gather(
            spool.append([block_of(3)]), spool.append([settlement]), return_exceptions=True
        )
        assert (type(both[0]), both[1]) == (Full, None)
        await spool.flush()
        assert spool.bytes > 5_000
        kept = entries(spool)
        assert len(kept) == 20 - len(refused) + 1
        assert settlement in kept
        for name in spool.reader.files():
            spool.reader.done(name)
        await spool.append([block_of(3)])


async def test_room_that_somebody_makes_by_hand_is_found(tmp_path: Path) -> None:
    settings = SpoolSettings(file_seconds_max=3600.0, total_bytes_max=1_000)
    bad = tmp_path / "failed" / "failover_x.bad"
    bad.parent.mkdir()
    bad.write_bytes(b"x" * 990)
    async with await Spool.open(RealDisk(tmp_path), settings) as spool:
        with pytest.raises(Full):
            await spool.append([block_of()])
        bad.unlink()
        await spool.append([block_of()])
