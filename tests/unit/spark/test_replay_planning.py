"""Which spool files come first, what goes together, and who looks for repeated transaction ids."""

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from forebay.log.values import Queue, QueueSettings
from forebay.model import Block, Message
from forebay.spark.replay.planning import Source, deduping, grouped, in_order, repeated
from forebay.spark.replay.staging import Gathering, is_original
from forebay.spool.lines import SpooledBlock, decode_line
from forebay.spool.names import FileName
from forebay.spool.scanning import Stretch


def source(id: str, folder: str = "a", *, size: int = 1, failed: bool = False) -> Source:
    return Source(folder, FileName("failover", id, "finished"), size, failed)


def queue(name: str, dedupe_seconds: float, keep_seconds: float = 86_400) -> Queue:
    settings = QueueSettings(dedupe_seconds=dedupe_seconds, keep_seconds=keep_seconds)
    return Queue(1, name, settings, 0)


def test_files_come_by_their_time_whichever_server_wrote_them() -> None:
    files = [source("03", "b"), source("01", "b"), source("02", "a"), source("01", "b", failed=True)]
    assert [(each.name.id, each.failed) for each in in_order(files)] == [
        ("01", True),
        ("01", False),
        ("02", False),
        ("03", False),
    ]


@given(st.lists(st.integers(0, 100), max_size=50), st.integers(1, 120))
def test_groups_are_all_files_in_order_and_none_is_too_large_unless_it_is_one_file(
    sizes: list[int], bytes_max: int
) -> None:
    files = [source(f"{number:08x}", size=size) for number, size in enumerate(sizes)]
    groups = grouped(files, bytes_max=bytes_max)
    assert [each for group in groups for each in group] == files
    assert all(sum(each.size for each in group) <= bytes_max or len(group) == 1 for group in groups)


def test_transaction_ids_are_compared_where_a_queue_forgets_them_too_soon() -> None:
    queues = [queue("long", 86_400), queue("off", 0), queue("short", 60), queue("brief", 60, keep_seconds=0)]
    rules = deduping(queues, 10 << 20, QueueSettings())
    assert rules.is_needed
    windows = [rules.window(name) for name in ("long", "off", "short", "brief", "new")]
    assert windows == [None, 0, None, 60_000_000, None]
    assert not deduping([queue("long", 86_400)], 10 << 20, QueueSettings()).is_needed
    assert deduping([], 100 << 30, QueueSettings()).window("new") == 3_600_000_000


def test_messages_are_repeated_within_the_window_of_the_last_new_one() -> None:
    """As a log finds them: a duplicate doesn't prolong the window, and none has no end."""
    places = [((0, 0, 0, number), at) for number, at in enumerate([0, 50, 60, 100, 119, 120, 10])]
    assert [place[3] for place in repeated(places, 60)] == [1, 3, 4]
    assert [place[3] for place in repeated(places, 0)] == [1, 2, 3, 4, 5, 6]
    assert repeated(places[:1], 60) == []


def original(number: int, queue: str = "q") -> SpooledBlock:
    line = b'{"queue":"%b","partition":"p","payload":%d,"transaction_id":"t%d"}' % (
        queue.encode(),
        number,
        number,
    )
    decoded = decode_line(line, "failover_x", number, 5)
    entry = decoded.entry  # type: ignore[union-attr]  # a bad line has none, and fails here
    assert isinstance(entry, SpooledBlock)
    return entry


def gather(entries: list[SpooledBlock], *, plain: bool = False) -> list[SpooledBlock]:
    gathering = Gathering(plain=plain)
    ready = [gathering.add(entry, Stretch(n * 10, 10, n + 1)) for n, entry in enumerate(entries)]
    return [entry for some in [*ready, gathering.rest()] for entry, _ in some]


def test_lines_of_the_original_server_become_blocks_under_ids_that_are_always_the_same() -> None:
    entries = [original(n, "q" if n % 2 else "r") for n in range(1, 2500)]
    first, again = gather(entries), gather(entries)
    assert [(each.queue, len(each.block)) for each in first] == [
        ("q", 1000),
        ("r", 1000),
        ("q", 250),
        ("r", 249),
    ]
    assert [each.block.id for each in first] == [each.block.id for each in again]
    assert len({each.block.id for each in first}) == 4
    assert [m.payload for m in first[0].block][:3] == [b"1", b"3", b"5"]


def test_what_is_left_out_of_a_gathered_block_does_not_change_its_id() -> None:
    entries = [original(n) for n in range(5)]
    lacking = [
        SpooledBlock(each.queue, each.block.without({0}), 1) if n == 2 else each
        for n, each in enumerate(entries)
    ]
    (whole,), (less,) = gather(entries), gather(lacking)
    assert (whole.block.id, len(whole.block), len(less.block), less.damaged) == (less.block.id, 5, 4, 1)


def test_a_file_that_plain_replay_began_on_goes_line_by_line() -> None:
    entries = [original(n) for n in range(5)]
    assert gather(entries, plain=True) == entries


def test_a_block_of_one_of_ours_is_not_taken_for_a_line_of_the_original_server() -> None:
    assert is_original(original(1).block)
    assert not is_original(Block.of([Message(b"1")]))
