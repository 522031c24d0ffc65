"""Every byte of a small folder flipped, and every cut: never a crash, nothing wrong, the rest delivered."""

import pytest

from forebay.fastqueue.record import Damage
from forebay.fastqueue.settings import FormatName
from tests.disks import SimulatedDisk
from tests.unit.fastqueue.queues import ALL, datas, drain, opened

BLOCKS = [b"hello", b"a" * 40, b"", b"world-world-world", bytes(range(90)), b"the last one"]
each_format = pytest.mark.parametrize("layout", ["native", "governor"])


def made(layout: FormatName, chunk_size: int = 200) -> SimulatedDisk:
    """A closed folder with six blocks, of which none is acknowledged."""
    disk = SimulatedDisk()
    queue = opened(disk, format=layout, chunk_size=chunk_size)
    for block in BLOCKS:
        queue.push([block])
    queue.close()
    return disk


def chunks_of(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in disk.list() if name not in ("fastqueue.meta", "lock"))


def copied(disk: SimulatedDisk, **changed: bytes | None) -> SimulatedDisk:
    """A folder with the same files, but for those that are given; None leaves one out."""
    fresh = SimulatedDisk()
    for name in disk.list():
        content = changed.get(name, disk.content(name))
        if content is not None:
            fresh.put(name, content)
    return fresh


def is_in_order(found: list[bytes]) -> bool:
    rest = iter(BLOCKS)
    return all(block in rest for block in found)


def holding(disk: SimulatedDisk, layout: FormatName) -> dict[str, list[bytes]]:
    """The blocks of each chunk, by reading each alone."""
    result = {}
    for name in chunks_of(disk):
        alone = SimulatedDisk()
        alone.put(name, disk.content(name))
        result[name] = drain(opened(alone, [], format=layout, chunk_size=200))
    return result


@pytest.mark.parametrize("mask", [0xFF, 0x01, 0x80])
def test_a_flipped_byte_of_a_native_chunk_costs_its_block_alone(mask: int) -> None:
    disk = made("native")
    for name in chunks_of(disk):
        for offset in range(len(disk.content(name))):
            damaged = copied(disk)
            damaged.flip(name, offset, mask)
            reports: list[Damage] = []
            queue = opened(damaged, reports, chunk_size=200)
            found = drain(queue)
            assert is_in_order(found), "wrong data"
            assert len(found) >= len(BLOCKS) - 1, "more than one block was lost"
            assert reports, "nothing was reported"
            (report,) = [report for report in reports if report.kind != "meta"]
            assert report.file == name
            assert report.offset <= offset < report.offset + report.size
            assert report.quarantined is not None
            content = damaged.content(report.quarantined)
            assert content == damaged.content(name)[report.offset : report.offset + report.size]
            assert queue.entry_count == 0
            queue.push([b"goes on"])
            assert drain(queue) == [b"goes on"]


def test_a_flipped_byte_of_a_governor_chunk_loses_nothing_in_silence() -> None:
    disk = made("governor")
    for name in chunks_of(disk):
        for offset in range(len(disk.content(name))):
            damaged = copied(disk)
            damaged.flip(name, offset)
            reports: list[Damage] = []
            queue = opened(damaged, reports, format="governor", chunk_size=200)
            found = drain(queue)
            kept = [block for block in found if block in BLOCKS]
            # Without a checksum a block may come changed; its neighbours may not, and none goes unsaid.
            assert is_in_order(kept)
            assert reports or len(found) == len(BLOCKS), "something is gone and nothing was said"
            assert len(kept) >= len(BLOCKS) - 1 or any(report.quarantined for report in reports)
            queue.push([b"goes on"])
            assert drain(queue) == [b"goes on"]


@each_format
def test_a_chunk_that_was_cut_anywhere_gives_what_is_before_the_cut(layout: FormatName) -> None:
    disk = made(layout)
    held = holding(disk, layout)
    for name in chunks_of(disk):
        for size in range(len(disk.content(name))):
            damaged = copied(disk, **{name: disk.content(name)[:size]})
            reports: list[Damage] = []
            queue = opened(damaged, reports, format=layout, chunk_size=200)
            found = drain(queue)
            assert is_in_order(found)
            others = [block for other, blocks in held.items() for block in blocks if other != name]
            assert set(others) <= set(found), "a block of another chunk was lost"
            if layout == "native":
                assert reports, "nothing was reported"
            queue.push([b"goes on"])
            assert drain(queue) == [b"goes on"]


@each_format
def test_without_a_meta_everything_is_rebuilt_from_the_chunks(layout: FormatName) -> None:
    disk = copied(made(layout), **{"fastqueue.meta": None})
    queue = opened(disk, format=layout, chunk_size=200)
    assert (queue.entry_count, queue.total_bytes) == (len(BLOCKS), sum(map(len, BLOCKS)))
    assert drain(queue) == BLOCKS


@each_format
def test_a_meta_with_any_flipped_byte_loses_nothing(layout: FormatName) -> None:
    disk = made(layout)
    for offset in range(len(disk.content("fastqueue.meta"))):
        damaged = copied(disk)
        damaged.flip("fastqueue.meta", offset, 0x01)
        queue = opened(damaged, [], format=layout, chunk_size=200)
        found = drain(queue)
        if layout == "native" or found != BLOCKS:
            # An offset that points to another block can't be told from the right one, in the old format.
            assert found == (BLOCKS if layout == "native" else BLOCKS[-len(found) :])


@each_format
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"name": "fastqueue"', b"null"])
def test_a_meta_that_is_none_loses_nothing(layout: FormatName, content: bytes) -> None:
    reports: list[Damage] = []
    disk = copied(made(layout), **{"fastqueue.meta": content})
    assert drain(opened(disk, reports, format=layout, chunk_size=200)) == BLOCKS
    assert [report.kind for report in reports] == ["meta"]


def test_a_meta_of_another_queue_is_not_believed() -> None:
    other = SimulatedDisk()
    queue = opened(other, chunk_size=200)
    queue.push([b"x" * 30] * 3)
    queue.read(2, ALL)
    queue.ack([0, 1])
    queue.close()
    reports: list[Damage] = []
    disk = copied(made("native"), **{"fastqueue.meta": other.content("fastqueue.meta")})
    assert drain(opened(disk, reports, chunk_size=200)) == BLOCKS
    assert [report.kind for report in reports] == ["meta"]


@each_format
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_chunk_that_is_gone_is_reported_and_stepped_over(layout: FormatName, gone: int) -> None:
    size = 150 if layout == "native" else 40
    disk = SimulatedDisk()
    queue = opened(disk, format=layout, chunk_size=size, compression="none")
    expected = [b"%02d" % number * 10 for number in range(4)]
    queue.push(expected)
    queue.close()
    names = chunks_of(disk)
    assert len(names) == 4
    reports: list[Damage] = []
    queue = opened(
        copied(disk, **{names[gone]: None}), reports, format=layout, chunk_size=size, compression="none"
    )
    assert drain(queue) == expected[:gone] + expected[gone + 1 :]
    (report,) = reports
    assert (report.kind, report.file) == ("missing", names[gone])
    if layout == "native":
        assert (report.first, report.last) == (gone, gone)
    assert queue.entry_count == 0


def test_a_restored_old_meta_repeats_blocks_and_loses_none() -> None:
    disk = made("native")
    old = disk.content("fastqueue.meta")
    queue = opened(disk, chunk_size=200)
    queue.read(3, ALL)
    queue.ack([0, 1, 2])
    queue.push([b"more"])
    queue.close()
    found = drain(opened(copied(disk, **{"fastqueue.meta": old}), [], chunk_size=200))
    assert found[-4:] == [*BLOCKS[3:], b"more"]


def test_the_numbers_of_lost_blocks_are_not_given_again() -> None:
    disk = made("native")
    queue = opened(copied(disk, **dict.fromkeys(chunks_of(disk))), [], chunk_size=200)
    assert queue.push([b"new"]) == range(len(BLOCKS), len(BLOCKS) + 1)
    assert datas(queue.read(1, ALL)) == [b"new"]


def test_damage_is_kept_before_its_chunk_is_deleted() -> None:
    disk = made("native")
    name = chunks_of(disk)[0]
    disk.flip(name, 100)
    bad = disk.content(name)
    queue = opened(disk, [], chunk_size=200)
    drain(queue)
    queue.sync()
    assert name not in disk.list()
    (kept,) = [name for name in disk.list("quarantine") if name.endswith(".bad")]
    assert disk.content(f"quarantine/{kept}") in bad


def test_a_chunk_whose_damage_can_not_be_copied_is_kept_whole() -> None:
    disk = made("native")
    name = chunks_of(disk)[0]
    disk.flip(name, 100)
    bad = disk.content(name)
    reports: list[Damage] = []
    queue = opened(disk, reports, chunk_size=200)
    capacity, disk.capacity = disk.capacity, 0
    assert len(drain(queue)) == len(BLOCKS) - 1
    assert reports[0].quarantined is None
    disk.capacity = capacity
    queue.sync()
    assert disk.content(f"{name}.damaged") == bad
    assert name not in disk.list()


def test_blocks_of_a_missing_chunk_are_not_taken_off_the_count_twice() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, chunk_size=150, compression="none")
    queue.push([b"%02d" % number * 10 for number in range(6)])
    queue.close()
    names = chunks_of(disk)
    disk = copied(disk, **{names[2]: None})
    queue = opened(disk, [], chunk_size=150, compression="none")
    assert len(queue.read(9, ALL)) == 5
    queue.close()
    disk = copied(disk, **{names[4]: None})
    queue = opened(disk, [], chunk_size=150, compression="none")
    assert queue.entry_count == 4
    assert len(queue.read(9, ALL)) == 4
