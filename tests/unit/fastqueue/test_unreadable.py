"""Sectors that a disk can't read: what is before and behind them is delivered, and they are reported."""

import errno
from random import Random

import pytest

from forebay.fastqueue.inspection import Folder, repair, verify
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Damage
from forebay.fastqueue.settings import FormatName
from forebay.model import ManualClock, Unavailable
from tests.disks import ReadFault, SimulatedDisk
from tests.unit.fastqueue.queues import ALL, NOW, datas, drain, opened

SECTOR = 4096
CHUNK = 140_000
_chance = Random(3)
BLOCKS = [_chance.randbytes(5000) for _ in range(40)]
each_format = pytest.mark.parametrize("layout", ["native", "governor"])
each_compression = pytest.mark.parametrize("compression", ["snappy", "none"])


def made(layout: FormatName, compression: str = "snappy") -> SimulatedDisk:
    """A closed folder with two chunks of blocks, each larger than a sector."""
    disk = SimulatedDisk()
    queue = opened(disk, format=layout, chunk_size=CHUNK, compression=compression)
    for block in BLOCKS:
        queue.push([block])
    queue.close()
    return disk


def chunks_of(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.list() if name not in ("fastqueue.meta", "lock"))


def drain_in_spite_of_faults(queue: FastQueue, tries: int = 100) -> list[bytes]:
    """Read and acknowledge everything; a reading that fails is tried again."""
    result: list[bytes] = []
    for _ in range(tries):
        try:
            records = queue.read(ALL, ALL)
        except Unavailable:
            continue
        if not records:
            return result
        queue.ack([record.sequence for record in records])
        result += datas(records)
    raise AssertionError("it stays unreadable")


@each_format
@each_compression
def test_a_bad_sector_costs_the_blocks_in_it_alone(layout: FormatName, compression: str) -> None:
    size = len(made(layout).content(chunks_of(made(layout))[0]))
    for start in range(0, size, SECTOR):
        disk = made(layout, compression)
        name = chunks_of(disk)[0]
        disk.fail_reads(name, ReadFault(start, start + SECTOR))
        reports: list[Damage] = []
        queue = opened(disk, reports, format=layout, chunk_size=CHUNK, compression=compression)
        found = drain_in_spite_of_faults(queue)
        rest = iter(BLOCKS)
        assert all(block in rest for block in found), "wrong data, or out of order"
        assert len(found) >= len(BLOCKS) - 2, "more than the blocks in the sector was lost"
        assert queue.corruptions == len(reports) >= 1
        assert (queue.entry_count, queue.total_bytes) == (0, 0)
        for report in reports:
            assert report.file == name
            assert report.offset < start + SECTOR
            assert report.offset + report.size > start or report.kind == "missing"
        queue.push([b"goes on"])
        assert drain(queue) == [b"goes on"]


@each_format
def test_what_is_before_a_bad_sector_is_read_first(layout: FormatName) -> None:
    disk = made(layout)
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    disk.fail_reads(chunks_of(disk)[0], ReadFault(8 * SECTOR, 9 * SECTOR))
    found = datas(queue.read(ALL, ALL))
    assert len(found) >= 4
    assert found == BLOCKS[: len(found)]
    with pytest.raises(Unavailable, match="can't be read"):
        queue.read(ALL, ALL)


@each_format
def test_a_fault_that_goes_away_in_time_costs_nothing(layout: FormatName) -> None:
    disk = made(layout)
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    disk.fail_reads(chunks_of(disk)[0], ReadFault(0, CHUNK, times=4))
    assert drain_in_spite_of_faults(queue) == BLOCKS
    assert queue.corruptions == 0


@each_format
def test_an_error_that_is_not_the_mediums_is_never_taken_for_damage(layout: FormatName) -> None:
    disk = made(layout)
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    disk.fail_reads(chunks_of(disk)[0], ReadFault(0, CHUNK, error=errno.EMFILE, times=50))
    for _ in range(50):
        with pytest.raises(Unavailable):
            queue.read(ALL, ALL)
    assert drain(queue) == BLOCKS
    assert queue.corruptions == 0


@each_format
def test_a_queue_opens_whatever_part_of_its_folder_can_not_be_read(layout: FormatName) -> None:
    for name in ["fastqueue.meta", *chunks_of(made(layout))]:
        disk = made(layout)
        disk.fail_reads(name, ReadFault(0, 1 << 30))
        reports: list[Damage] = []
        queue = opened(disk, reports, format=layout, chunk_size=CHUNK)
        found = drain_in_spite_of_faults(queue)
        assert reports, "nothing was reported"
        is_meta = name == "fastqueue.meta"
        assert len(found) == len(BLOCKS) if is_meta else 0 < len(found) < len(BLOCKS)
        queue.push([b"goes on"])
        assert drain(queue) == [b"goes on"]


@each_format
@pytest.mark.parametrize("which", [0, 1])
def test_a_chunk_that_can_not_be_opened_is_set_aside_whole(layout: FormatName, which: int) -> None:
    disk = made(layout)
    name = chunks_of(disk)[which]
    content = disk.content(name)
    disk.unopenable.add(name)
    found = verify(Folder(disk, layout), lambda _: None)
    assert (0 < found.blocks < len(BLOCKS), found.is_sound) == (True, False)
    reports: list[Damage] = []
    queue = opened(disk, reports, format=layout, chunk_size=CHUNK)
    assert f"{name}.damaged" in disk.list()
    disk.unopenable.clear()
    assert disk.content(f"{name}.damaged") == content
    rest = drain_in_spite_of_faults(queue)
    assert rest == (BLOCKS[-len(rest) :] if which == 0 else BLOCKS[: len(rest)])
    assert reports
    assert queue.entry_count == 0
    queue.push([b"goes on"])
    assert drain(queue) == [b"goes on"]


@each_format
def test_a_chunk_that_can_not_be_opened_any_more_is_stepped_over(layout: FormatName) -> None:
    disk = made(layout)
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    name = chunks_of(disk)[0]
    disk.unopenable.add(name)
    rest = drain_in_spite_of_faults(queue)
    assert rest == BLOCKS[-len(rest) :]
    assert (queue.entry_count, queue.corruptions) == (0, 1)
    queue.sync()
    assert f"{name}.damaged" in disk.list()


@each_format
def test_a_chunk_with_a_bad_sector_is_kept_whole(layout: FormatName) -> None:
    disk = made(layout)
    name = chunks_of(disk)[0]
    content = disk.content(name)
    disk.fail_reads(name, ReadFault(8 * SECTOR, 9 * SECTOR))
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    drain_in_spite_of_faults(queue)
    queue.sync()
    assert disk.content(f"{name}.damaged") == content


@each_format
def test_two_bad_sectors_spare_what_is_between_them(layout: FormatName) -> None:
    disk = made(layout)
    name = chunks_of(disk)[0]
    content = disk.content(name)
    # Both are where the length of a block is: only from there on blocks lead from one to the next.
    for start in (content.find(BLOCKS[2]) - 4, content.find(BLOCKS[12]) - 4):
        disk.fail_reads(name, ReadFault(start, start + 1))
    queue = opened(disk, format=layout, chunk_size=CHUNK)
    found = drain_in_spite_of_faults(queue)
    assert BLOCKS[4:11] == [block for block in found if block in BLOCKS[4:11]]
    assert len(found) >= len(BLOCKS) - 4


@each_format
def test_a_look_from_outside_and_a_repair_step_over_bad_sectors_at_once(layout: FormatName) -> None:
    disk = made(layout)
    disk.fail_reads(chunks_of(disk)[0], ReadFault(8 * SECTOR, 9 * SECTOR))
    found = verify(Folder(disk, layout), lambda _: None)
    assert (found.blocks >= len(BLOCKS) - 2, found.is_sound) == (True, False)
    assert len(repair(disk, layout, "snappy", ManualClock(NOW).now, lambda _: None)) >= 1


def test_the_age_of_a_block_that_can_not_be_read_is_not_known() -> None:
    disk = made("native")
    queue = opened(disk, chunk_size=CHUNK)
    disk.fail_reads(chunks_of(disk)[0], ReadFault(0, CHUNK))
    assert queue.oldest_enqueued_at_us is None
