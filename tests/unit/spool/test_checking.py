"""Looking at a folder, also one that is in use or can't be written to."""

import errno
import os
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.model import Block, Message, mint
from forebay.spool import reader as reading
from forebay.spool.checking import list_files, repair, set_aside, verify
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement, encode_entry
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from tests.disks import SimulatedDisk, _Open

NAME = FileName("failover", "019a0c11-7fe8-7000-8000-000000000001", "finished")
WRITING = FileName("failover", NAME.id, "writing")


def block_of(size: int) -> SpooledBlock:
    return SpooledBlock("orders", Block.of([Message(b'{"n":%d}' % n) for n in range(size)]))


def lines_of(*entries: Spooled) -> bytes:
    return b"".join(map(encode_entry, entries))


def put(data: bytes, name: FileName = NAME) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.put(str(name), data)
    return disk


def test_the_cut_end_of_a_file_that_is_being_written_is_no_damage() -> None:
    data = lines_of(block_of(2), block_of(3))
    for end in range(len(data)):
        found = verify(put(data[:end], WRITING), WRITING)
        assert found.is_sound, end
        assert found.unfinished == found.faults_count
        assert verify(put(data[:end]), NAME).is_sound is (found.faults_count == 0)


def test_damage_before_the_end_of_a_file_that_is_being_written_is_damage() -> None:
    data = lines_of(block_of(1), block_of(1), block_of(2))
    disk = put(data[:-5], WRITING)
    disk.flip(str(WRITING), 5)
    found = verify(disk, WRITING)
    assert (found.faults_count, found.unfinished, found.is_sound) == (3, 2, False)


def test_a_block_that_lacks_lines_in_the_middle_is_damage_also_while_the_file_is_being_written() -> None:
    lines = lines_of(block_of(3), block_of(1)).splitlines(keepends=True)
    found = verify(put(b"".join([*lines[:2], *lines[3:]]), WRITING), WRITING)
    assert (found.faults_count, found.unfinished, found.is_sound) == (1, 0, False)


class BusyDisk(SimulatedDisk):
    """A file is gone by the time that it is opened."""

    gone = ""

    def open(self, name: str, *, create: bool = False) -> _Open:
        if name == self.gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return super().open(name, create=create)


def test_a_file_that_is_replayed_while_the_folder_is_listed_is_left_out() -> None:
    disk, other = BusyDisk(), FileName("qos0", NAME.id, "finished")
    for name in (NAME, other):
        disk.put(str(name), lines_of(block_of(1)))
    assert [listed.name for listed in list_files(disk)] == [NAME, other]
    disk.gone = str(NAME)
    assert [listed.name for listed in list_files(disk)] == [other]


def test_all_reasons_are_told_oldest_file_first() -> None:
    disk, later = put(b"{\n"), FileName("failover", "019a0c12-7fe8-7000-8000-000000000001", "finished")
    disk.put(str(later), b"}\n" + lines_of(block_of(1)))
    assert list(set_aside(disk)) == []
    assert repair(disk).mended == {str(NAME): 1, str(later): 1}
    assert [(reason.file, reason.line) for reason in set_aside(disk)] == [(str(NAME), 1), (str(later), 1)]


def test_what_was_refused_and_is_in_by_now_is_no_longer_told() -> None:
    disk = put(lines_of(block_of(1)))
    reader = Reader(disk)
    reader.refuse(NAME, reader.read(NAME).found, "there is no queue 'orders'")
    reader.done(NAME)
    assert [reason.kind for reason in set_aside(disk)] == ["refused"]
    reader.done(NAME, failed=True)
    assert list(set_aside(disk)) == []


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 20])
def test_lines_that_a_repair_has_emptied_are_no_events(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CHUNK_BYTES", chunk)
    settlement = SpooledSettlement(mint(), b"done")
    disk = put(b"{\n" + lines_of(block_of(2)) + b"}\n\n]\n" + lines_of(settlement))
    assert Reader(disk).count(NAME) == 6
    repair(disk)
    assert Reader(disk).count(NAME) == 3


def test_what_was_refused_is_mended_where_it_is() -> None:
    disk = SimulatedDisk()
    disk.make_folder("failed")
    disk.put(f"failed/{NAME}", lines_of(block_of(1)) + b"{\n" + lines_of(block_of(2)))
    disk.put(f"failed/{NAME.stem}.copy", b"half")
    assert not verify(disk, NAME, failed=True).is_sound
    assert repair(disk).mended == {f"failed/{NAME}": 1}
    found = verify(disk, NAME, failed=True)
    assert (found.is_sound, found.messages) == (True, 3)
    assert sorted(disk.list("failed")) == [f"{NAME.stem}.bad", str(NAME), f"{NAME.stem}.reasons"]
    assert disk.content(f"failed/{NAME.stem}.bad") == b"{\n"
    assert disk.list() == []


def test_a_repair_removes_no_copies_but_its_own() -> None:
    disk = put(lines_of(block_of(1)))
    disk.put("holiday.copy", b"mine")
    disk.put(f"{NAME.stem}.copy", b"half")
    repair(disk)
    assert disk.content("holiday.copy") == b"mine"
    assert f"{NAME.stem}.copy" not in disk.list()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_files_that_can_not_be_written_are_read(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / str(NAME)).write_bytes(lines_of(block_of(2)))
    real = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    assert verify(RealDisk(tmp_path), NAME).messages == 2
