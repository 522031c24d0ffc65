"""Every byte of a file flipped or cut: noticed, set aside, and the rest delivered."""

from contextlib import suppress

import pytest

from forebay.model import Block, Message, Unavailable, mint
from forebay.spool import scanning
from forebay.spool.appending import Appender, Write
from forebay.spool.aside import reasons
from forebay.spool.checking import list_files, repair, verify
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement, encode_entry, note_synced
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from forebay.spool.recovering import recover
from forebay.spool.scanning import Found, Page, Place, Stretch
from forebay.spool.settings import SpoolSettings
from tests.disks import CrashError, SimulatedDisk

NAME = FileName("failover", "019a0c11-7fe8-7000-8000-000000000001", "finished")
WRITING = FileName("failover", NAME.id, "writing")
ROOMY = 1 << 20


def block_of(size: int) -> SpooledBlock:
    return SpooledBlock("orders", Block.of([Message(b'{"n":%d}' % n, "p", f"t{n}") for n in range(size)]))


ENTRIES: list[Spooled] = [block_of(2), SpooledSettlement(mint(), b"done"), block_of(3), block_of(1)]
LINES = b"".join(map(encode_entry, ENTRIES))


def put(data: bytes, name: FileName = NAME) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.put(str(name), data)
    return disk


def messages(page: Page) -> list[bytes | Message]:
    """What was delivered, message by message."""
    return [item for found in page.found for item in parts(found.entry)]


def parts(entry: Spooled) -> list[bytes | Message]:
    return list(entry.block) if isinstance(entry, SpooledBlock) else [entry.payload]


ALL = [item for entry in ENTRIES for item in parts(entry)]


def lines_hit(offset: int) -> set[int]:
    """Which lines can't be read when a byte is changed: a newline ties two together."""
    line = LINES.count(b"\n", 0, offset)
    return {line, line + 1} if LINES[offset : offset + 1] == b"\n" else {line}


def test_a_byte_that_is_flipped_costs_its_line_and_no_other() -> None:
    for offset in range(len(LINES) - 1):
        disk = put(LINES)
        disk.flip(str(NAME), offset, 0x10)
        page = Reader(disk).read(NAME)
        hit = lines_hit(offset)
        assert messages(page) == [item for line, item in enumerate(ALL) if line not in hit], offset
        (reason,) = reasons(disk, NAME)
        assert (reason.kind, reason.line, reason.file) == ("damaged", min(hit) + 1, str(NAME))
        damaged = disk.content(str(NAME))[reason.offset : reason.offset + reason.bytes]
        assert disk.content(f"failed/{NAME.stem}.bad") == damaged


def whole_before(end: int) -> list[Spooled]:
    """The entries that end before a place."""
    kept, offset = [], 0
    for entry in ENTRIES:
        offset += len(encode_entry(entry))
        if offset <= end:
            kept.append(entry)
    return kept


@pytest.mark.parametrize("name", [NAME, WRITING])
def test_a_file_that_is_cut_anywhere_gives_whole_blocks_and_keeps_the_rest(name: FileName) -> None:
    for end in range(len(LINES)):
        disk = put(LINES[:end], name)
        recover(disk)
        reader = Reader(disk)
        found = [item for file in reader.files() for item in reader.read(file).found]
        assert [item.entry for item in found] == whole_before(end), end
        kept = sum(len(encode_entry(item.entry)) for item in found)
        aside = disk.content(f"failed/{NAME.stem}.bad") if disk.list("failed") else b""
        assert aside.replace(b"\n", b"") == LINES[kept:end].replace(b"\n", b"")


def test_a_bad_line_is_set_aside_once_however_often_it_is_read() -> None:
    disk = put(LINES)
    disk.flip(str(NAME), 10)
    for _ in range(3):
        assert len(Reader(disk).read(NAME).faults) == 1
    assert len(list(reasons(disk, NAME))) == 1
    assert disk.content(f"failed/{NAME.stem}.bad").count(b"\n") == 1


def test_a_hole_in_what_was_never_synced_costs_the_whole_block_but_before_that_only_its_lines() -> None:
    first, second = encode_entry(block_of(3)), encode_entry(block_of(3))
    data = first + note_synced(second, len(first))
    for hole, delivered in ((first.index(b"\n") + 5, [2, 3]), (len(data) - 30, [3])):
        disk = put(data, WRITING)
        disk.flip(str(WRITING), hole)
        (recovered,) = recover(disk)
        page = Reader(disk).read(NAME)
        assert [len(found.entry) for found in page.found] == delivered
        assert recovered.events == sum(delivered)


def test_a_hole_that_a_full_disk_leaves_no_room_to_mend_waits_for_room_and_costs_the_whole_block() -> None:
    later = FileName("failover", NAME.id[:-1] + "2", "finished")
    disk = put(LINES, WRITING)
    disk.put(str(later), encode_entry(block_of(1)))
    begin, size = len(b"".join(map(encode_entry, ENTRIES[:2]))), len(encode_entry(ENTRIES[2]))
    disk.flip(str(WRITING), LINES.index(b"t1", begin))
    torn = disk.content(str(WRITING))[begin : begin + size]
    disk.capacity -= disk.free_bytes()
    (recovered,) = recover(disk, may_leave=True)
    assert recovered.left
    reader = Reader(disk, left=[recovered.name])
    assert reader.files() == [NAME, later]
    assert reader.count(NAME) == len(ALL)
    with pytest.raises(Unavailable, match="No space"):
        reader.read(NAME)
    disk.capacity = ROOMY
    page = reader.read(NAME)
    assert [found.entry for found in page.found] == [ENTRIES[0], ENTRIES[1], ENTRIES[3]]
    assert torn in disk.content(f"failed/{NAME.stem}.bad")
    assert reader.files() == [NAME, later]
    reader.done(NAME)
    assert reader.files() == [later]


def test_a_file_that_was_left_and_holds_nothing_whole_is_nothing_to_read() -> None:
    disk = put(encode_entry(block_of(2))[:-9], WRITING)
    disk.capacity -= disk.free_bytes()
    reader = Reader(disk, left=[file.name for file in recover(disk, may_leave=True)])
    disk.capacity = ROOMY
    assert reader.read(NAME) == Page([], [], None, 0)
    reader.done(NAME)
    assert reader.files() == []
    assert disk.list() == []


def test_who_can_wait_is_told_that_there_is_no_room_to_mend_a_file() -> None:
    disk = put(LINES[:-20], WRITING)
    disk.capacity -= disk.free_bytes()
    with pytest.raises(Unavailable, match="can't be recovered: No space"):
        recover(disk)
    assert disk.list() == [str(WRITING)]
    disk.capacity = ROOMY
    recover(disk)
    assert [found.entry for found in Reader(disk).read(NAME).found] == ENTRIES[:3]


def test_a_line_that_is_gone_makes_its_block_torn() -> None:
    lines = LINES.splitlines(keepends=True)
    page = Reader(put(b"".join(lines[:3] + lines[4:]))).read(NAME)
    assert [found.entry for found in page.found] == [ENTRIES[0], ENTRIES[1], ENTRIES[3]]
    (fault,) = page.faults
    assert (fault.kind, fault.stretch.line, fault.stretch.lines) == ("torn", 4, 2)


def test_pages_are_small_and_lead_through_the_whole_file() -> None:
    reader, found, pages = Reader(put(LINES)), list[Found](), 0
    place: Place | None = Place()
    while place is not None:
        page = reader.read(NAME, place, events_max=1)
        assert page.events <= 3
        found += page.found
        place, pages = page.next, pages + 1
    assert [item.entry for item in found] == ENTRIES
    assert pages >= 4
    assert found[2].stretch == Stretch(found[2].stretch.offset, found[2].stretch.size, 4, 3)


def test_repair_makes_a_file_sound_and_ids_stay() -> None:
    original = b'{"queue":"q","partition":"a","payload":1,"transaction_id":"x"}\n'
    disk = put(LINES[:-9] + b"\n" + original)
    disk.flip(str(NAME), LINES.index(b"\n", LINES.index(b"settlement")) + 20)
    before = Reader(disk).read(NAME).found
    report = verify(disk, NAME)
    assert (report.faults_count, report.is_sound, report.messages, report.settlements) == (2, False, 5, 1)
    assert repair(disk).mended == {str(NAME): 2}
    after = verify(disk, NAME)
    assert (after.is_sound, after.messages, after.queues) == (True, 5, {"orders": 4, "q": 1})
    again = Reader(disk).read(NAME).found
    assert [list(parts(item.entry)) for item in again] == [list(parts(item.entry)) for item in before]
    ids = [[i.entry.block.id for i in some if isinstance(i.entry, SpooledBlock)] for some in (before, again)]
    assert ids[0] == ids[1]
    assert [listed.state for listed in list_files(disk)] == ["finished"]


def test_what_the_log_refuses_is_kept_to_be_tried_again() -> None:
    disk = put(LINES)
    reader = Reader(disk)
    page = reader.read(NAME)
    reader.refuse(NAME, page.found[2:3], "there is no queue 'orders'")
    reader.done(NAME)
    assert reader.files() == []
    assert reader.failed() == [NAME]
    assert [found.entry for found in reader.read(NAME, failed=True).found] == [ENTRIES[2]]
    (reason,) = reasons(disk, NAME)
    assert (reason.kind, reason.reason, reason.line) == ("refused", "there is no queue 'orders'", 4)
    reader.done(NAME, failed=True)
    reader.done(NAME, failed=True)
    assert reader.failed() == []


def test_a_writer_says_what_was_synced_so_that_damage_is_told_from_a_torn_write() -> None:
    disk = SimulatedDisk()
    appender = Appender(disk, SpoolSettings())
    for size in (3, 2):
        assert appender.write([Write.of([block_of(size)])]) == [None]
    assert appender.current is not None
    disk.flip(str(appender.current), 10)
    recover(disk)
    (name,) = Reader(disk).files()
    assert [len(found.entry) for found in Reader(disk).read(name).found] == [2, 2]


def test_a_file_whose_sync_failed_holds_nothing_that_was_not_acknowledged_from_it() -> None:
    disk = SimulatedDisk()
    appender = Appender(disk, SpoolSettings())
    first, second = block_of(2), block_of(2)
    appender.write([Write.of([first])])
    disk.failing_syncs = 1
    assert appender.write([Write.of([second])]) == [None]
    (name,) = Reader(disk).files()
    assert [found.entry for found in Reader(disk).read(name).found] == [first]
    assert appender.current is not None
    assert appender.current.id > name.id
    assert disk.content(str(appender.current)) == encode_entry(second)


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_anywhere_in_a_recovery_is_followed_by_one_that_ends_the_same(seed: int) -> None:
    for step in range(1, 30):
        disk = SimulatedDisk(seed)
        disk.put(str(WRITING), LINES[:-20])
        disk.crash_at = step
        with suppress(CrashError):
            recover(disk)
        disk = disk.after_crash()
        recover(disk)
        assert [found.entry for found in Reader(disk).read(NAME).found] == ENTRIES[:3]
        assert LINES[:-20].splitlines()[-1] in disk.content(f"failed/{NAME.stem}.bad")


def test_a_line_that_has_no_end_in_sight_is_passed_over_without_being_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanning, "LINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(scanning, "_CHUNK_BYTES", 64)
    first = encode_entry(ENTRIES[0])
    page = Reader(put(first + b"x" * 5_000 + b"\n" + LINES[len(first) :])).read(NAME)
    assert [found.entry for found in page.found] == ENTRIES
    (fault,) = page.faults
    assert (fault.stretch.line, fault.stretch.size) == (3, 5_001)
    assert "over 1000 bytes" in fault.reason
