"""Names and fields of the original server, as ours, and back."""

import json
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Block, Message, Rejected
from forebay.model.limits import check_partition, check_queue_name
from forebay.spool.lines import Alone, Part, SpooledBlock, decode_line, encode_entry
from forebay.spool.original import Address, kept, plain_name, shown

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["Default", "", "~", "~x", " x", "x ", "~%FF", "~Default", "a\nb"]
)


@given(names, names)
def test_names_of_the_original_come_back_and_are_names_of_ours(queue: str, partition: str) -> None:
    ours = kept(Address(queue, partition))
    assert check_queue_name(ours.queue) == ours.queue
    assert check_partition(ours.partition) == ours.partition
    assert shown(ours) == (queue, partition or "Default")


@given(names, names, names, names)
def test_two_names_of_the_original_are_never_one_of_ours(a: str, b: str, c: str, d: str) -> None:
    one, other = Address(a, b or "Default"), Address(c, d or "Default")
    assert (kept(one) == kept(other)) == (one == other)


@given(names, names)
def test_a_line_goes_where_it_was_pushed_whatever_its_queue_and_partition_are_called(
    queue: str, partition: str
) -> None:
    try:
        check_queue_name(queue)
        check_partition(partition)
    except Rejected:
        return
    (line,) = encode_entry(SpooledBlock(queue, Block.of([Message(b"1", partition)]))).splitlines()
    part = decode_line(line, "failover_x", 1, 0)
    assert isinstance(part, Part)
    assert (part.queue, part.message.partition) == (queue, partition)


@pytest.mark.parametrize(
    ("partition", "said", "marked"),
    [("", "Default", True), ("Default", "Default", False), ("~a%0Ab", "a\nb", True), ("p", "p", False)],
)
def test_a_line_says_the_partition_as_the_original_does(partition: str, said: str, *, marked: bool) -> None:
    line = json.loads(encode_entry(SpooledBlock("q", Block.of([Message(b"1", partition)]))))
    assert (line["partition"], line.get("original", False)) == (said, marked)


def test_a_line_of_the_original_without_partition_is_one_of_the_default_partition() -> None:
    for said in ("", ',"partition":"Default"', ',"partition":""'):
        found = decode_line(b'{"queue":" q","payload":1%b}' % said.encode(), "failover_x", 1, 0)
        assert isinstance(found, Alone)
        assert isinstance(found.entry, SpooledBlock)
        assert (found.entry.queue, found.entry.block.partition(0)) == ("~%20q", "")


@pytest.mark.parametrize("partition", ["", "Default"])
def test_a_line_of_ours_from_before_the_mapping_is_read_as_it_was_meant(partition: str) -> None:
    body = (
        b'{"queue":"q","partition":"%b","payload":1,"transaction_id":null,"trace_id":"","namespace":"",'
        b'"task":"","block":"019a0c11-7fe8-7c3b-9f21-5d0c8e4b6a12","size":1,"created_at":5,"position":0'
        % partition.encode()
    )
    part = decode_line(b'%b,"crc":"%08x"}' % (body, crc32(body)), "failover_x", 1, 0)
    assert isinstance(part, Part)
    assert part.message.partition == partition


def test_a_name_of_ours_that_only_begins_like_an_escaped_one_is_shown_as_it_is() -> None:
    assert plain_name("~%FF") == "~%FF"
