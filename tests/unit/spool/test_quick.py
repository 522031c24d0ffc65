"""The quick ways of writing and reading many lines at once give what the careful ones give, line by line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay.model import Block, Message
from forebay.spool import lines, scanning
from forebay.spool.gathering import Gathering
from forebay.spool.lines import (
    Spooled,
    SpooledBlock,
    SpooledSettlement,
    are_json,
    decode_ours,
    encode_entry,
    is_json,
    note_synced,
)
from forebay.spool.names import FileName
from forebay.spool.scanning import Assembler, Fault, Found, Page, Place, scan, walk
from tests.disks import SimulatedDisk
from tests.unit.model.blocks import blocks, ids, messages

NAME = FileName("failover", "019a0c11-7fe8-7000-8000-000000000001", "finished")
ORIGINAL = b'{"queue":"q","partition":"a","payload":1,"transaction_id":"x","task":"t"}\n'

json_payloads = st.sampled_from([b"{}", b'{"a":[1,{}]}', b'"\xc3\xbc"', b"1", b"null", b"[" * 60 + b"]" * 60])
odd_payloads = st.sampled_from(
    [
        b"", b"[1", b"2]", b"1,2", b'"a', b'b"', b" 1", b"1 ", b"1\n", b"\n", b",", b'"\xff"', b"\xff",
        b"1\r", b"[1,\n2]", b"[" * 250 + b"]" * 250, b"[" * 890 + b"]" * 890, b"[" * 5000,
    ]
)  # fmt: skip
uniform_blocks = st.builds(
    lambda size, payload, headers, id: Block.of(
        [Message(payload, "p", f"t{n}", headers) for n in range(size)], id=id, created_at=7
    ),
    st.integers(1, 12),
    json_payloads,
    st.sampled_from([None, {"task": "load", "x": "y"}]),
    ids,
)
entries = (
    st.builds(SpooledBlock, st.sampled_from(["orders", "ümlaut"]), blocks | uniform_blocks)
    | st.builds(SpooledSettlement, ids, st.binary(max_size=9))
)  # fmt: skip


@contextmanager
def read_with_care() -> Iterator[None]:
    """See to it that every line is looked at alone."""
    with patch.object(scanning, "decode_ours", lambda _: None):
        yield


class Looked(msgspec.Struct):
    """All that reading a file can say."""

    pages: list[Page]
    walked: list[tuple[Found | Fault, int]]


def look(data: bytes, events_max: int, bytes_max: int) -> Looked:
    disk = SimulatedDisk()
    disk.put(str(NAME), data)
    file, pages = disk.open(str(NAME)), list[Page]()
    place: Place | None = Place()
    while place is not None:
        pages.append(scan(file, NAME, place, events_max=events_max, bytes_max=bytes_max, created_at=0))
        place = pages[-1].next
    assembler = Assembler(NAME, 0)
    return Looked(pages, [(item, assembler.synced) for item in walk(file, assembler)])


def assert_same_with_care(data: bytes, events_max: int, bytes_max: int, chunk: int) -> Looked:
    with patch.object(scanning, "_CHUNK_BYTES", chunk), patch.object(scanning, "LINE_BYTES_MAX", 5_000):
        quick = look(data, events_max, bytes_max)
        with read_with_care():
            assert quick == look(data, events_max, bytes_max)
    return quick


@given(st.lists(json_payloads | odd_payloads, min_size=1, max_size=6))
@example([b"[1", b"2]", b"3,4"])
@example([b'"a', b'b"', b"1,2"])
def test_payloads_are_all_json_at_once_only_if_each_of_them_is(payloads: list[bytes]) -> None:
    each = all(map(is_json, payloads))
    assert not are_json(payloads) or each
    plain = [payload for payload in payloads if is_json(payload)]
    assert are_json(plain) or not plain


@given(st.lists(messages | st.builds(Message, json_payloads | odd_payloads), min_size=1, max_size=8), ids)
def test_a_block_gives_the_same_lines_whichever_way_its_payloads_are_looked_at(
    some: list[Message], id: bytes
) -> None:
    entry = SpooledBlock("orders", Block.of(some, id=id))
    quick = encode_entry(entry)
    with patch.object(lines, "are_json", lambda _: False):
        assert encode_entry(entry) == quick


pages = st.integers(1, 40)
sizes = st.sampled_from([1, 300, 1 << 20])
chunks = st.sampled_from([64, 500, 3_000, 1 << 18])


@given(st.lists(entries, max_size=8), pages, sizes, chunks)
def test_any_file_is_read_quickly_as_it_is_with_care(
    spooled: list[Spooled], events_max: int, bytes_max: int, chunk: int
) -> None:
    data = b""
    for entry in spooled:
        data += note_synced(encode_entry(entry), len(data))
    looked = assert_same_with_care(data, events_max, bytes_max, chunk)
    if max(map(len, data.split(b"\n"))) < 5_000:
        assert [found.entry for page in looked.pages for found in page.found] == spooled


Damage = Callable[[bytes], bytes]
fractions = st.floats(0, 1, exclude_max=True)


def on_lines(change: Callable[[list[bytes], int], None]) -> Callable[[float], Damage]:
    """Make a damage of a change of the list of lines, at one of them."""

    def damage_at(where: float) -> Damage:
        def damage(data: bytes) -> bytes:
            some = data.splitlines(keepends=True)
            if some:
                change(some, int(where * len(some)))
            return b"".join(some)

        return damage

    return damage_at


def flip(where: float, mask: int) -> Damage:
    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        if changed:
            changed[int(where * len(changed))] ^= mask
        return bytes(changed)

    return damage


def zero(where: float, size: int) -> Damage:
    def damage(data: bytes) -> bytes:
        start = int(where * len(data))
        return data[:start] + bytes(len(data[start : start + size])) + data[start + size :]

    return damage


def cut(where: float) -> Damage:
    return lambda data: data[: int(where * len(data))]


def insert(line: bytes) -> Callable[[float], Damage]:
    return on_lines(lambda some, at: some.insert(at, line))


def forge(where: float, old: bytes, new: bytes) -> Damage:
    """Change what a line says, and make its checksum right: no damage, but nothing that we write."""

    def change(some: list[bytes], at: int) -> None:
        body, mark, _ = some[at].rpartition(b',"crc":')
        if mark and old in body:
            some[at] = lines._summed(body.replace(old, new, 1))

    return on_lines(change)(where)


FORGED = [
    (b'"position":0', b'"position":1'),
    (b'"position":1', b'"position":0'),
    (b'"position":', b'"position":-'),
    (b'"size":', b'"size":9'),
    (b'"size":', b'"size":-'),
    (b'"payload":', b'"load":'),
    (b'"block":"', b'"block":"x'),
    (b'"block":"', b'"block":null,"b":"'),
    (b'"queue":', b'"q":'),
    (b'"trace_id":""', b'"trace_id":1'),
    (b'"settlement":', b'"s":'),
    (b'"task":', b'"settlement":"","task":'),
    (b'"id":"', b'"id":"x'),
    (b"{", b"{ "),
    (b'"queue":"o', b'"queue":"p'),
    (b'"headers":{', b'"headers":{},"h":{'),
    (b'"payload":', b'"payload": '),
]
damages = (
    st.builds(flip, fractions, st.integers(1, 255))
    | st.builds(zero, fractions, st.integers(1, 600))
    | st.builds(cut, fractions)
    | st.builds(on_lines(lambda some, at: some.__delitem__(at)), fractions)
    | st.builds(on_lines(lambda some, at: some.insert(at, some[at // 2])), fractions)
    | st.builds(on_lines(lambda some, at: some.append(some.pop(at))), fractions)
    | st.sampled_from([b"\n", b"x" * 9_000 + b"\n", ORIGINAL, b"{}\n", b"[1]\n"]).flatmap(
        lambda line: st.builds(insert(line), fractions)
    )
    | st.builds(lambda where, change: forge(where, *change), fractions, st.sampled_from(FORGED))
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(entries, min_size=1, max_size=6),
    st.lists(damages, min_size=1, max_size=4),
    pages,
    sizes,
    chunks,
)
def test_a_file_with_any_damage_is_read_quickly_as_it_is_with_care(
    spooled: list[Spooled], damage: list[Damage], events_max: int, bytes_max: int, chunk: int
) -> None:
    data = b""
    for entry in spooled:
        data += note_synced(encode_entry(entry), len(data))
    for change in damage:
        data = change(data)
    assert_same_with_care(data, events_max, bytes_max, chunk)


@pytest.mark.parametrize(("old", "new"), FORGED)
def test_a_line_that_we_would_not_write_is_read_quickly_as_it_is_with_care(old: bytes, new: bytes) -> None:
    block = Block.of([Message(b"{}", "p", f"t{n}", {"x": "y"}) for n in range(4)])
    data = encode_entry(SpooledBlock("orders", block)) + encode_entry(SpooledSettlement(block.id, b"done"))
    for line in range(5):
        forged = forge(line / 5, old, new)(data)
        assert_same_with_care(data + forged + data, 100, 1 << 20, 1 << 18)


def test_a_block_that_is_larger_than_any_may_be_is_found_out_both_ways() -> None:
    with patch("forebay.spool.gathering._BYTES_MAX", 100):
        entry = SpooledBlock(
            "q", Block.of([Message(b'"123456"', headers={"k": str(n // 3)}) for n in range(20)])
        )
        looked = assert_same_with_care(encode_entry(entry) * 2, 100, 1 << 20, 700)
    assert [fault.kind for page in looked.pages for fault in page.faults] == ["damaged", "damaged"]


def test_no_more_is_held_of_a_block_than_any_may_have() -> None:
    data = encode_entry(SpooledBlock("q", Block.of([Message(b'"123456"')] * 20)))
    sound = decode_ours(data.splitlines(keepends=True))
    assert sound is not None
    gathering = Gathering.begin(sound[0])
    assert gathering is not None
    with patch("forebay.spool.gathering._BYTES_MAX", 100):
        assert gathering.add_run(sound[:12], 0) == 12
        assert gathering.add_run(sound, 12) == 0
    assert (len(gathering), gathering.missing) == (12, 8)


def test_headers_that_stay_the_same_from_run_to_run_count_once() -> None:
    data = encode_entry(SpooledBlock("q", Block.of([Message(b"1", headers={"k": "v" * 60})] * 10)))
    sound = decode_ours(data.splitlines(keepends=True))
    assert sound is not None
    gathering = Gathering.begin(sound[0])
    assert gathering is not None
    with patch("forebay.spool.gathering._BYTES_MAX", 100):
        assert [gathering.add_run(sound[:end], end - 5) for end in (5, 10)] == [5, 5]


def test_sound_blocks_are_read_the_quick_way() -> None:
    data = b"".join(encode_entry(SpooledBlock("q", Block.of([Message(b"{}")] * 50))) for _ in range(9))
    with patch.object(scanning, "decode_line", side_effect=AssertionError("one by one")):
        assert sum(page.events for page in look(data, 100, 1 << 20).pages) == 450
