"""The bytes of both formats, as docs/explanation/fastqueue-format.md draws them."""

import json
from pathlib import Path

import pytest

from forebay.fastqueue.governor_meta import GovernorMeta, decode_governor_meta
from forebay.fastqueue.layout import Head
from forebay.fastqueue.native import NativeLayout
from forebay.fastqueue.record import Damage, Record
from tests.disks import SimulatedDisk
from tests.unit.fastqueue.queues import ALL, drain, opened

DOCUMENT = Path(__file__).parents[3] / "docs/explanation/fastqueue-format.md"
NATIVE = bytes.fromhex("""
    464f524542415951 0100400004030201 0200000000000000 0700000000000000
    0700000000000000 e803000000000000 0000002000000000 00000000d995782c
    f14651b3 3c2b6553 0500000000000000 0700000000000000 0040204648470600 68656c6c6f
    f14651b3 a87b4915 0600000000000080 0800000000000000 0140204648470600 2800619a0100
""")
GOVERNOR = {
    "0000000000000000": bytes.fromhex(
        "0700000000000080051068656c6c6f 06000000000000802800619a0100 010000000000008000"
    ),
    "0000000000000040": bytes.fromhex("13000000000000801140776f726c642d776f726c642d776f726c64"),
    "fastqueue.meta": b"""{
  "name": "fastqueue",
  "reader_offset": 0,
  "writer_offset": 91,
  "version": 2,
  "entry_count": 4,
  "total_bytes": 62
}""",
}
BLOCKS = [b"hello", b"a" * 40, b"", b"world-world-world"]


def folder(**changed: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    for name, content in (GOVERNOR | changed).items():
        disk.put(name, content)
    return disk


def meta(**fields: object) -> bytes:
    return json.dumps({**json.loads(GOVERNOR["fastqueue.meta"]), **fields}).encode()


def test_a_native_chunk_has_these_bytes() -> None:
    layout = NativeLayout()
    head = Head(2, 7, 7, 1000, 512 << 20, 0x01020304)
    records = [Record(7, 1767225600000000, b"hello"), Record(8, 1767225600000001, b"a" * 40)]
    packed = layout.pack([record.data for record in records])
    framed = layout.frame(records, packed, 0, 2, enough=1 << 20, room=1 << 20)
    assert layout.head(head) + framed.data == NATIVE
    assert layout.read_head(NATIVE, 2) == head
    assert layout.parse(NATIVE, 64, 2, 7, count=2, bytes_max=ALL, least=0).records == records


def test_the_document_draws_these_bytes() -> None:
    digits = "".join(character for character in DOCUMENT.read_text() if not character.isspace())
    assert NATIVE.hex() in digits
    assert GOVERNOR["0000000000000040"].hex() in digits


@pytest.mark.parametrize("in_one", [True, False])
def test_a_governor_folder_has_these_bytes(in_one: bool) -> None:  # noqa: FBT001 - a parameter
    disk = SimulatedDisk()
    queue = opened(disk, format="governor", chunk_size=64)
    for push in [BLOCKS] if in_one else [[block] for block in BLOCKS]:
        queue.push(push)
    queue.sync()
    assert {name: disk.content(name) for name in disk.list()} == GOVERNOR


@pytest.mark.parametrize("chunk_size", [64, 1 << 20])
def test_a_governor_folder_is_read_whatever_chunk_size_is_set(chunk_size: int) -> None:
    reports: list[Damage] = []
    queue = opened(folder(), reports, format="governor", chunk_size=chunk_size)
    assert (queue.entry_count, queue.total_bytes) == (4, 62)
    assert drain(queue) == BLOCKS
    assert reports == []


def test_a_meta_of_version_1_says_where_to_go_on_and_the_rest_is_counted() -> None:
    old = b'{"name": "fastqueue", "reader_offset": 15, "writer_offset": 91, "version": 1}'
    queue = opened(folder(**{"fastqueue.meta": old}), format="governor", chunk_size=64)
    assert (queue.entry_count, queue.total_bytes) == (3, 57)
    assert drain(queue) == BLOCKS[1:]


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 4), (15, 3), (29, 2), (64, 1), (91, 0), (128, 0), (7, 4), (50, 4), (9999, 4)]
)
def test_a_reader_offset_counts_only_where_a_block_begins(offset: int, expected: int) -> None:
    disk = folder(**{"fastqueue.meta": meta(reader_offset=offset, writer_offset=max(91, offset))})
    assert len(drain(opened(disk, [], format="governor", chunk_size=64))) == expected


@pytest.mark.parametrize("fields", [{"reader_offset": -1}, {"reader_offset": 100}, {"writer_offset": "x"}])
def test_a_meta_that_contradicts_itself_is_none(fields: dict[str, object]) -> None:
    assert decode_governor_meta(meta(**fields)) is None


def test_zeros_are_a_hole_unless_nothing_is_compressed() -> None:
    name = "0000000000000040"
    plain = folder(**{name: GOVERNOR[name] + bytes(8)})
    assert drain(opened(plain, format="governor", chunk_size=64, compression="none")) == [*BLOCKS, b""]
    reports: list[Damage] = []
    torn = folder(**{name: GOVERNOR[name] + bytes(8)})
    assert drain(opened(torn, reports, format="governor", chunk_size=64)) == BLOCKS
    assert [(report.kind, report.offset, report.size) for report in reports] == [("torn", 27, 8)]


def test_counts_of_zero_are_left_out_of_the_meta() -> None:
    disk = folder()
    queue = opened(disk, format="governor", chunk_size=64)
    drain(queue)
    queue.close()
    assert json.loads(disk.content("fastqueue.meta")) == {
        "name": "fastqueue", "reader_offset": 91, "writer_offset": 91, "version": 2,
    }  # fmt: skip
    assert decode_governor_meta(disk.content("fastqueue.meta")) == GovernorMeta("fastqueue", 91, 91, 2)
