"""Blocks as lines, and back."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Block, Message, id_time, mint
from forebay.spool.lines import (
    Alone,
    BadLineError,
    Part,
    SpooledBlock,
    SpooledSettlement,
    decode_line,
    derive_id,
    encode_entry,
    note_synced,
)
from forebay.spool.names import FileName, next_name, parse_name, sort_names
from tests.unit.model.blocks import blocks

ORIGINAL = (
    b'{"queue":"orders","partition":"customer-123","payload":{"id":1},"transaction_id":"tx-1",'
    b'"trace_id":"trace-1","namespace":"sales","task":"process"}'
)


def decode(data: bytes) -> list[Part]:
    parts = [decode_line(line, "failover_x", i, 0) for i, line in enumerate(data.split(b"\n")[:-1], 1)]
    assert all(isinstance(part, Part) for part in parts)
    return [part for part in parts if isinstance(part, Part)]


@given(blocks)
def test_a_block_comes_back_as_it_was(block: Block) -> None:
    parts = decode(encode_entry(SpooledBlock("orders", block)))
    back = Block.of([part.message for part in parts], id=block.id, created_at=parts[0].created_at)
    assert back == block
    assert [part.position for part in parts] == list(range(len(block)))
    assert {(part.queue, part.size) for part in parts} == {("orders", len(block))}


@pytest.mark.parametrize(
    "payload",
    [
        b"{}", b'{"a": 1}', b" 1", b"1 ", b"[1,\n2]", b"[1,\r2]", b"", b"\xff", b'"\xff"', b"NaN",
        b'"\xc3\xbc"', b"1,2", b'"\\ud800"', b"[" * 60 + b"]" * 60, b"[" * 890 + b"]" * 890, b"[" * 5000,
        b"[" + b"{}," * 300 + b"1]",
    ],
)  # fmt: skip
def test_any_payload_comes_back_with_every_byte(payload: bytes) -> None:
    data = encode_entry(SpooledBlock("orders", Block.of([Message(payload)])))
    (part,) = decode(data)
    assert part.message.payload == payload


def test_a_line_has_the_keys_of_the_original_and_is_json() -> None:
    headers = {"queen-trace-id": "t", "queen-task": "load", "other": "x"}
    block = Block.of([Message(b'{"id":1}', "north", "tx", headers), Message(b"\x00")])
    first, second = map(json.loads, encode_entry(SpooledBlock("orders", block)).splitlines())
    wanted = {"queue": "orders", "partition": "north", "payload": {"id": 1}, "transaction_id": "tx"}
    assert wanted.items() <= first.items()
    assert (first["trace_id"], first["namespace"], first["task"]) == ("t", "", "load")
    assert (second["payload_base64"], second["transaction_id"], second["trace_id"]) == ("AA==", None, "")
    assert (second["partition"], "original" in first) == ("Default", False)


def test_a_line_of_the_original_server_is_a_message_whose_id_stays_the_same() -> None:
    found = decode_line(ORIGINAL, "failover_019a0c11-7fe8", 7, 5)
    assert isinstance(found, Alone)
    assert isinstance(found.entry, SpooledBlock)
    assert found.entry.block.message(0) == Message(
        b'{"id":1}',
        "customer-123",
        "tx-1",
        {
            "queen-trace-id": "trace-1",
            "queen-namespace": "sales",
            "queen-task": "process",
            "queen-made": "1",
        },
    )
    assert found.entry.block.created_at == 5
    ids = [
        decode_line(ORIGINAL, name, number, 0).entry.block.id  # type: ignore[union-attr]
        for name, number in [("failover_019a0c11-7fe8", 7), ("failover_019a0c11-7fe8", 8), ("failover_1", 7)]
    ]
    assert ids[0] == found.entry.block.id
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{}", "no queue"),
        (b'{"queue":"orders"}', "no payload"),
        (b"nonsense", "malformed"),
        (b'{"queue":1,"payload":1}', "Expected"),
        (b'{"queue":"orders","payload":1,"block":"x"}', "checksum"),
    ],
)
def test_a_line_that_says_too_little_is_bad(line: bytes, reason: str) -> None:
    with pytest.raises(BadLineError, match=reason):
        decode_line(line, "failover_x", 1, 0)


def test_no_byte_of_a_line_changes_unnoticed() -> None:
    block = Block.of([Message(b'{"id":1}', "north", "tx", {"a": "b"}, start_time=9)])
    for entry in (SpooledBlock("orders", block), SpooledSettlement(mint(), b"\x01\x02")):
        line = encode_entry(entry)[:-1]
        for offset in range(len(line)):
            for mask in (0x01, 0x20, 0x80):
                damaged = bytearray(line)
                damaged[offset] ^= mask
                with pytest.raises(BadLineError):
                    decode_line(bytes(damaged), "failover_x", 1, 0)


@given(st.binary(max_size=30), st.integers(0, 1 << 40))
def test_a_settlement_comes_back_with_what_was_synced_before_it(payload: bytes, synced: int) -> None:
    entry = SpooledSettlement(mint(), payload)
    lines = note_synced(encode_entry(entry) + b"rest\n", synced)
    first, rest = lines.split(b"\n", 1)
    assert decode_line(first, "failover_x", 1, 0) == Alone(entry, synced)
    assert rest == b"rest\n"


def test_a_message_that_goes_its_own_way_has_an_id_of_its_own() -> None:
    id = mint()
    assert derive_id(id, 1) == derive_id(id, 1)
    assert len({id, derive_id(id, 1), derive_id(id, 2)}) == 3
    assert id_time(derive_id(id, 1)) is None


def test_a_new_file_comes_after_all_others_also_when_the_clock_went_back() -> None:
    for last in ("ffffffff-ffff-7fff-bfff-ffffffff0000", "fffffff0-0000"):
        name = next_name("failover", last)
        assert name.id > last
        assert parse_name(str(name)) == name


def test_files_are_sorted_by_age_and_others_left_alone() -> None:
    names = ["qos0_019a0c11-7fe9.buf", "failover_019a0c11-8021.buf", "failover_019a0c11-7fe8.buf", "x.buf"]
    names += [
        "failover_019a0c11-7fe8.buf.tmp",
        "lock",
        "reserve",
        "failover_.buf",
        "failover_019a0c11-7fe8.copy",
    ]
    assert list(map(str, sort_names(names, "finished"))) == [names[2], names[0], names[1]]
    assert list(map(str, sort_names(names, "writing"))) == ["failover_019a0c11-7fe8.buf.tmp"]
    assert FileName("failover", "019a0c11-7fe8", "finished").minted_at() == 0x019A0C117FE8 * 1000


def test_the_lines_in_the_document_are_as_it_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "spool-format.md"
    lines = [line.encode() for line in page.read_text().splitlines() if line.startswith("{")]
    message, settlement = (decode_line(line, "failover_x", 1, 0) for line in lines)
    assert isinstance(message, Part)
    assert (message.message.payload, message.position, message.size) == (b'{"id":1}', 0, 2)
    assert isinstance(settlement, Alone)
    assert isinstance(settlement.entry, SpooledSettlement)
    assert settlement.entry.payload == b"done"


def test_a_structure_that_is_read_is_strict_about_types() -> None:
    with pytest.raises(BadLineError, match="Expected `str`"):
        decode_line(msgspec.json.encode({"queue": "q", "payload": 1, "partition": None}), "failover_x", 1, 0)
