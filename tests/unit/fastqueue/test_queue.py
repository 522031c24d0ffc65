"""A queue by its verbs: order, acknowledgement, limits, and what it does with odd blocks."""

from collections import deque
from itertools import repeat
from typing import Any

import pytest

from forebay.fastqueue.faults import DiskFull
from forebay.fastqueue.record import Damage
from forebay.fastqueue.settings import Durability, FormatName
from forebay.model import Full, ManualClock, Misconfigured, Rejected, TooLarge, Unavailable
from tests.disks import SimulatedDisk
from tests.unit.fastqueue.queues import ALL, NOW, datas, drain, opened

DURABILITIES: tuple[Durability, ...] = ("always", "interval", "memory")
FORMATS: tuple[FormatName, ...] = ("native", "governor")

each_durability = pytest.mark.parametrize("durability", DURABILITIES)
each_format = pytest.mark.parametrize("layout", FORMATS)


def blocks(count: int, size: int = 20) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


@each_durability
@each_format
def test_blocks_come_in_the_order_of_their_pushes(durability: Durability, layout: FormatName) -> None:
    queue = opened(SimulatedDisk(), durability=durability, format=layout, inmemory_blocks=8)
    expected = blocks(100)
    for first in range(0, 100, 5):
        assert queue.push(expected[first : first + 5]) == range(first, first + 5)
    assert drain(queue, 7) == expected


@each_durability
def test_pushes_and_reads_that_take_turns_lose_nothing(durability: Durability) -> None:
    queue = opened(SimulatedDisk(), durability=durability, inmemory_blocks=4)
    result: list[bytes] = []
    for number in range(200):
        queue.push([b"%d" % number, b"%d'" % number])
        records = queue.read(3 if number % 2 else 1, ALL)
        queue.ack([record.sequence for record in records])
        result += datas(records)
    result += drain(queue)
    assert result == [b"%d%s" % (number, mark) for number in range(200) for mark in (b"", b"'")]


@each_durability
@each_format
def test_an_empty_block_is_a_block(durability: Durability, layout: FormatName) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, durability=durability, format=layout)
    queue.push([b"", b"a", b""])
    queue.close()
    queue = opened(disk, durability=durability, format=layout)
    assert queue.entry_count == 3
    assert drain(queue) == [b"", b"a", b""]
    assert queue.entry_count == 0


@each_durability
@each_format
def test_a_block_over_the_limit_is_rejected_before_anything_changes(
    durability: Durability, layout: FormatName
) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, durability=durability, format=layout, block_bytes_max=10)
    steps = disk.steps
    with pytest.raises(TooLarge, match="block 1 is 11 bytes, over 10B"):
        queue.push([b"fine", b"x" * 11])
    assert (queue.entry_count, queue.next_sequence, disk.steps) == (0, 0, steps)


def test_the_largest_block_fits_into_a_chunk_and_no_larger_one() -> None:
    queue = opened(SimulatedDisk(), chunk_size=1000)
    largest = bytes(range(256)) * 3 + b"!" * 136
    assert len(largest) == 904
    queue.push([largest])
    with pytest.raises(TooLarge):
        queue.push([largest + b"!"])
    assert drain(queue) == [largest]


def test_settings_that_leave_no_room_for_a_block_are_refused() -> None:
    with pytest.raises(Misconfigured, match="doesn't fit into a chunk"):
        opened(SimulatedDisk(), block_bytes_max=400)
    with pytest.raises(Misconfigured, match="has no room for a block"):
        opened(SimulatedDisk(), chunk_size=64)


def test_text_is_rejected() -> None:
    queue = opened(SimulatedDisk())
    with pytest.raises(Rejected, match="block 1 is str, not bytes"):
        queue.push([b"a", "b"])  # type: ignore[list-item]
    assert queue.entry_count == 0


@each_durability
def test_a_caller_may_change_its_buffer_after_a_push(durability: Durability) -> None:
    queue = opened(SimulatedDisk(), durability=durability)
    buffer = bytearray(b"before")
    queue.push([buffer, memoryview(buffer)[2:]])  # type: ignore[list-item]
    buffer[:] = b"after!"
    assert drain(queue) == [b"before", b"fore"]


@each_format
def test_a_chunk_is_filled_to_the_last_byte(layout: FormatName) -> None:
    disk = SimulatedDisk()
    overhead, head = (32, 64) if layout == "native" else (8, 0)
    size = head + 2 * (overhead + 10)
    queue = opened(disk, format=layout, chunk_size=size, compression="none")
    queue.push(blocks(5, 10))
    chunks = sorted(name for name in disk.list() if name != "fastqueue.meta")
    assert [len(disk.content(name)) for name in chunks] == [size, size, head + overhead + 10]
    queue.close()
    queue = opened(disk, format=layout, chunk_size=size, compression="none")
    queue.push([b"another 10"])
    assert drain(queue) == [*blocks(5, 10), b"another 10"]


@each_format
def test_a_second_opener_is_refused(layout: FormatName) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, format=layout)
    with pytest.raises(Misconfigured):
        opened(disk, format=layout)
    queue.close()
    opened(disk, format=layout).close()


@each_format
@pytest.mark.parametrize("sizes", [(100, 300), (300, 100)])
def test_the_chunk_size_may_change(layout: FormatName, sizes: tuple[int, int]) -> None:
    disk = SimulatedDisk()
    reports: list[Damage] = []
    expected = blocks(30, 4)
    for part, size in enumerate((*sizes, sizes[0])):
        queue = opened(disk, reports, format=layout, chunk_size=size)
        queue.push(expected[10 * part : 10 * part + 10])
        queue.close()
    assert drain(opened(disk, reports, format=layout, chunk_size=sizes[1])) == expected
    assert reports == []


@each_durability
def test_a_peek_changes_nothing_however_often(durability: Durability) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, durability=durability, inmemory_blocks=8)
    queue.push(blocks(30))
    before = (queue.entry_count, queue.total_bytes, disk.steps)
    for _ in range(1000):
        assert datas(queue.peek(3, ALL)) == blocks(3)
    assert (queue.entry_count, queue.total_bytes, disk.steps) == before
    assert drain(queue) == blocks(30)


def test_the_cursor_moves_over_what_is_acknowledged_in_any_order() -> None:
    queue = opened(SimulatedDisk())
    queue.push(blocks(6))
    queue.read(6, ALL)
    assert queue.ack([1, 2, 4]) == 3
    assert (queue.cursor, queue.entry_count) == (0, 3)
    assert queue.ack([0, 1]) == 1
    assert (queue.cursor, queue.entry_count, queue.total_bytes) == (3, 2, 40)
    assert queue.ack(range(3, 6)) == 2
    assert (queue.cursor, queue.entry_count, queue.total_bytes) == (6, 0, 0)


def test_a_number_that_was_not_read_is_rejected() -> None:
    queue = opened(SimulatedDisk())
    queue.push(blocks(3))
    queue.read(1, ALL)
    with pytest.raises(Rejected, match="block 1 was not read"):
        queue.ack([0, 1])
    with pytest.raises(Rejected, match="block 2 was not read"):
        queue.unread(2)
    assert queue.entry_count == 3


@each_durability
def test_what_was_handed_out_comes_again_after_unread_but_for_what_is_done(durability: Durability) -> None:
    queue = opened(SimulatedDisk(), durability=durability, inmemory_blocks=2)
    queue.push(blocks(6))
    queue.read(5, ALL)
    queue.ack([0, 3])
    queue.unread(0)
    assert [record.sequence for record in queue.read(9, ALL)] == [1, 2, 4, 5]


@each_format
@pytest.mark.parametrize("done", range(13))
def test_a_restart_goes_on_at_the_cursor(layout: FormatName, done: int) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, format=layout, chunk_size=200)
    queue.push(blocks(12))
    queue.ack([record.sequence for record in queue.read(done, ALL)])
    for _ in range(2):
        queue.close()
        reports: list[Damage] = []
        queue = opened(disk, reports, format=layout, chunk_size=200)
        assert (queue.entry_count, queue.total_bytes, reports) == (12 - done, 20 * (12 - done), [])
    queue.push([b"more"])
    assert drain(queue, 5) == [*blocks(12)[done:], b"more"]


def test_a_restart_repeats_what_is_not_acknowledged_alone() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(blocks(8))
    queue.read(8, ALL)
    queue.ack([0, 1, 4, 6])
    queue.close()
    queue = opened(disk)
    assert (queue.entry_count, queue.total_bytes) == (4, 80)
    assert [record.sequence for record in queue.read(9, ALL)] == [2, 3, 5, 7]


def test_reads_are_bounded_by_bytes_but_give_one() -> None:
    queue = opened(SimulatedDisk(), inmemory_blocks=1)
    queue.push(blocks(6))
    assert len(queue.read(9, 1)) == 1
    assert len(queue.read(9, 50)) == 2
    assert len(queue.read(9, 60)) == 3
    assert queue.read(9, 60) == []


@each_durability
def test_limits_are_exact_and_leave_nothing_behind(durability: Durability) -> None:
    queue = opened(SimulatedDisk(), durability=durability, max_size=5, max_bytes=60)
    queue.push(blocks(3))
    with pytest.raises(Full, match="more than 60B"):
        queue.push([b"x"])
    assert queue.entry_count == 3
    queue.ack([record.sequence for record in queue.read(2, ALL)])
    queue.push([b"", b"", b"", b""])
    with pytest.raises(Full, match="more than 5 blocks"):
        queue.push([b""])
    assert drain(queue) == [blocks(3)[2], b"", b"", b"", b""]


def test_drop_evicts_the_oldest_that_nobody_has() -> None:
    queue = opened(SimulatedDisk())
    queue.push(blocks(6))
    queue.read(1, ALL)
    assert datas(queue.drop(2)) == blocks(6)[1:3]
    assert datas(queue.drop(1, bytes_min=21)) == blocks(6)[3:5]
    assert (queue.entry_count, queue.cursor) == (2, 0)
    assert len(queue.drop(9)) == 1
    assert queue.drop(1) == []


def test_the_oldest_time_is_that_of_the_oldest_block_not_acknowledged() -> None:
    clock, disk = ManualClock(NOW), SimulatedDisk()
    queue = opened(disk, clock=clock)
    for block in blocks(3):
        queue.push([block])
        clock.advance(seconds=1)
    queue.read(3, ALL)
    queue.ack([1])
    assert queue.oldest_enqueued_at_us == NOW
    queue.ack([0])
    queue.close()
    queue = opened(disk, clock=clock)
    assert queue.oldest_enqueued_at_us == NOW + 2_000_000
    drain(queue)
    assert opened(SimulatedDisk()).oldest_enqueued_at_us is queue.oldest_enqueued_at_us is None


def test_chunks_behind_the_cursor_are_deleted_once_the_meta_says_so() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(blocks(30))
    before = [name for name in disk.list() if name.endswith(".chunk")]
    queue.ack([record.sequence for record in queue.read(20, ALL)])
    assert [name for name in disk.list() if name.endswith(".chunk")] == before
    queue.tick(0.0)
    after = [name for name in disk.list() if name.endswith(".chunk")]
    assert 0 < len(after) < len(before)
    assert queue.disk_bytes == sum(len(disk.content(name)) for name in after)
    assert drain(queue) == blocks(30)[20:]


def test_stale_blocks_in_memory_reach_the_disk_after_a_while() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, durability="memory", stale_flush=30.0)
    queue.tick(0.0)
    queue.push(blocks(2))
    queue.tick(1.0)
    queue.tick(30.5)
    assert queue.memory_blocks == 2
    assert disk.list() == ["fastqueue.meta"]
    queue.tick(31.5)
    assert len(disk.list()) == 2
    assert drain(opened(disk.after_crash(), durability="memory")) == blocks(2)


def test_blocks_that_are_done_in_time_never_reach_the_disk() -> None:
    disk = SimulatedDisk()
    queue = opened(disk, durability="interval", inmemory_blocks=64)
    for _ in range(50):
        queue.push(blocks(8))
        drain(queue)
    queue.tick(0.0)
    assert queue.disk_bytes == 0
    queue.push([b"later"])
    queue.tick(1.0)
    assert drain(opened(disk.after_crash(), durability="interval")) == [b"later"]


def test_the_meta_is_written_once_a_second_if_anything_changed() -> None:
    queue = opened(SimulatedDisk(), meta_sync_interval=1.0)
    queue.push(blocks(2))
    for now in (0.0, 0.5, 0.9, 1.0, 2.0, 3.0):
        queue.tick(now)
    assert queue.meta_syncs == 1
    queue.read(1, ALL)
    queue.ack([0])
    queue.tick(3.5)
    queue.tick(4.0)
    assert queue.meta_syncs == 2


def test_a_closed_queue_says_so() -> None:
    queue = opened(SimulatedDisk())
    queue.close()
    queue.close()
    for call in (lambda: queue.push([b""]), lambda: queue.read(1, 1), lambda: queue.tick(0.0), queue.sync):
        with pytest.raises(Unavailable, match="closed"):
            call()


@each_durability
@each_format
def test_a_full_disk_takes_nothing_and_loses_nothing(durability: Durability, layout: FormatName) -> None:
    disk = SimulatedDisk(capacity=1200)
    settings: dict[str, Any] = {"durability": durability, "format": layout, "inmemory_blocks": 3}
    queue = opened(disk, **settings, compression="none")
    taken: list[bytes] = []
    for number in range(60):
        block = b"%03d" % number * 10
        try:
            queue.push([block])
        except DiskFull:
            assert queue.entry_count == len(taken)
        else:
            taken.append(block)
    assert 5 < len(taken) < 60
    assert queue.entry_count == len(taken)
    disk.capacity = 1 << 20
    queue.push([b"again"])
    assert drain(queue) == [*taken, b"again"]


def test_a_full_disk_gets_its_space_back_from_what_is_delivered() -> None:
    disk = SimulatedDisk(capacity=2500)
    queue = opened(disk, compression="none")
    with pytest.raises(Full):
        deque(map(queue.push, repeat([b"x" * 100])), maxlen=0)
    taken = queue.entry_count
    disk.capacity -= disk.free_bytes()
    drain(queue)
    queue.tick(0.0)
    queue.push([b"x" * 100] * (taken // 2))


def test_after_a_failed_sync_a_new_chunk_is_begun_and_nothing_is_lost() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(blocks(2))
    disk.failing_syncs = 1
    queue.push([b"third"])
    assert len([name for name in disk.list() if name.endswith(".chunk")]) == 2
    queue.push([b"fourth"])
    expected = [*blocks(2), b"third", b"fourth"]
    assert drain(opened(disk.after_crash())) == expected
    assert drain(queue) == expected


def test_a_push_whose_syncs_all_fail_is_refused_and_leaves_nothing() -> None:
    disk = SimulatedDisk()
    queue = opened(disk)
    queue.push(blocks(2))
    disk.failing_syncs = 2
    with pytest.raises(Unavailable, match="can't be written"):
        queue.push([b"third"])
    assert (queue.entry_count, queue.next_sequence) == (2, 2)
    queue.push([b"fourth"])
    assert drain(opened(disk.after_crash())) == [*blocks(2), b"fourth"]
    assert drain(queue) == [*blocks(2), b"fourth"]


def test_a_failed_sync_of_an_interval_is_reported() -> None:
    disk, reports = SimulatedDisk(), list[Damage]()
    queue = opened(disk, reports, durability="interval")
    queue.push(blocks(2))
    disk.failing_syncs = 1
    queue.tick(0.0)
    assert [(report.kind, report.first, report.last) for report in reports] == [("unsynced", 0, 1)]
    queue.push([b"third"])
    queue.tick(1.0)
    assert len([name for name in disk.list() if name.endswith(".chunk")]) == 2
    assert b"third" in drain(opened(disk.after_crash(), durability="interval"))


@pytest.mark.parametrize(("before", "after"), [("native", "governor"), ("governor", "native")])
def test_a_folder_of_the_other_format_is_refused_and_left_as_it_is(
    before: FormatName, after: FormatName
) -> None:
    disk = SimulatedDisk()
    queue = opened(disk, format=before)
    queue.push(blocks(3))
    queue.close()
    content = {name: disk.content(name) for name in disk.list()}
    with pytest.raises(Misconfigured, match=f"format {before}, not {after}"):
        opened(disk, format=after)
    assert {name: disk.content(name) for name in disk.list()} == content
    assert drain(opened(disk, format=before)) == blocks(3)
