"""Rows become blocks: order, grouping, limits, and everything that a message can have."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.contract import Field, Format, QueueContract
from forebay.model import Limits, Message
from forebay.spark.rows import PAGE_BYTES, blocks_of, gather
from tests.unit.spark.sink_rows import NOON, QUEUES, batch, judged, messages, written

NOON_US = int(NOON.timestamp()) * 1_000_000


def test_a_row_has_all_that_a_message_has() -> None:
    rows = batch(
        value=[b"a", b"b"],
        queue=["plain", "plain"],
        partition=["p", None],
        key=["k", None],
        headers=[[("flow", "f")], None],
        start_time=[NOON, None],
    )
    assert messages(written(rows)) == [
        ("plain", Message(b"a", "p", "k", {"flow": "f"}, NOON_US)),
        ("plain", Message(b"b")),
    ]


def test_text_is_written_as_utf_8() -> None:
    rows = pa.record_batch([pa.array(["ä", "b"])], names=["value"])
    assert [m.payload for _, m in messages(written(rows, queue="plain"))] == ["ä".encode(), b"b"]


def test_the_option_queue_goes_before_the_column() -> None:
    rows = batch(value=[b"a", b"b"], queue=["nowhere", None])
    assert [name for name, _ in messages(written(rows, queue="other"))] == ["other", "other"]


def test_queues_are_told_apart_and_keep_their_order() -> None:
    rows = batch(value=[b"0", b"1", b"2", b"3"], queue=["plain", "other", "plain", "other"])
    assert messages(written(rows)) == [
        ("plain", Message(b"0")),
        ("plain", Message(b"2")),
        ("other", Message(b"1")),
        ("other", Message(b"3")),
    ]


def test_a_block_of_an_ordered_queue_has_one_partition() -> None:
    rows = batch(value=[b"0", b"1", b"2", b"3"], partition=["x", "y", "x", "y"])
    found = written(rows, queue="lanes")
    assert [(b.partition_table, b.payloads) for _, b in found] == [
        (["x"], [b"0", b"2"]),
        (["y"], [b"1", b"3"]),
    ]


def test_ordered_and_unordered_queues_come_in_one_page() -> None:
    rows = batch(
        value=[b"0", b"1", b"2", b"3"],
        queue=["plain", "lanes", "plain", "lanes"],
        partition=["x", "x", "y", "y"],
    )
    assert [(name, b.partitions()) for name, b in written(rows)] == [
        ("plain", ["x", "y"]),
        ("lanes", ["x"]),
        ("lanes", ["y"]),
    ]


def test_blocks_are_cut_at_the_number_of_messages() -> None:
    rows = batch(value=[str(n).encode() for n in range(25)])
    found = written(rows, queue="plain", limits=Limits(block_messages_max=10))
    assert [len(block) for _, block in found] == [10, 10, 5]
    assert [m.payload for _, m in messages(found)] == [str(n).encode() for n in range(25)]


def test_blocks_are_cut_at_their_bytes_with_headers_keys_and_partitions_counted() -> None:
    limits = Limits(message_bytes_max=100, headers_bytes_max=1000, block_bytes_max=6000)
    rows = batch(
        value=[b"v" * 100] * 30,
        partition=["p" * 200] * 30,
        key=[f"{n:0200}" for n in range(30)],
        headers=[[("h", f"{n:0500}")] for n in range(30)],
    )
    found = written(rows, queue="plain", limits=limits)  # which checks each of them
    assert len(found) > 1
    assert sum(len(block) for _, block in found) == 30


def test_a_page_is_bounded_by_bytes_and_knows_its_first_row() -> None:
    many = [batch(value=[b"x" * (PAGE_BYTES // 4)] * 2) for _ in range(5)]
    assert [(first, len(held)) for first, held in gather(iter(many))] == [(0, 2), (4, 2), (8, 1)]


def test_empty_batches_are_no_page() -> None:
    assert list(gather(iter([batch(value=[]), batch(value=[])]))) == []


def test_a_slice_of_a_batch_is_read_from_where_it_begins() -> None:
    rows = batch(
        value=[b"0", b"1", b"2"], headers=[[("a", "0")], [("a", "1")], [("a", "2")]], key=["k0", "k1", "k2"]
    ).slice(1, 2)
    found = [m for _, m in messages(written(rows, queue="plain"))]
    assert found == [Message(b"1", "", "k1", {"a": "1"}), Message(b"2", "", "k2", {"a": "2"})]


def test_headers_that_a_join_could_not_tell_apart_are_told_apart() -> None:
    maps = [[("a\x1eb", "1")], [("a", "b\x1e1")], [("a", "\x1f")], [], None, [("", "")]]
    rows = batch(value=[b""] * len(maps), headers=maps)
    assert [m.headers for _, m in messages(written(rows, queue="plain"))] == [
        dict(m or ()) or None for m in maps
    ]


texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=8)
rows_of_any_kind = st.tuples(
    st.binary(max_size=20),
    st.sampled_from(sorted(QUEUES)),
    st.none() | texts,
    st.none() | texts.filter(bool),
    st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    st.none() | st.datetimes(min_value=NOON.replace(tzinfo=None)),
)


@given(st.lists(rows_of_any_kind, min_size=1, max_size=40), st.integers(1, 8))
def test_every_row_is_one_message_in_the_order_of_its_queue_and_partition(
    rows: list[tuple[bytes, str, str | None, str | None, dict[str, str] | None, object]], most: int
) -> None:
    value, queue, partition, key, headers, start_time = map(list, zip(*rows, strict=True))
    maps = [None if h is None else list(h.items()) for h in headers]
    columns = batch(
        value=value, queue=queue, partition=partition, key=key, headers=maps, start_time=start_time
    )
    cut = len(rows) // 2
    halves = [half for half in (columns.slice(0, cut), columns.slice(cut)) if half.num_rows]
    found = messages(written(*halves, limits=Limits(block_messages_max=most)))
    for name in QUEUES:
        lanes = {row[2] or "" for row in rows} if name == "lanes" else {None}
        for lane in lanes:
            wanted = [row for row in rows if row[1] == name and lane in (None, row[2] or "")]
            got = [m for target, m in found if target == name and lane in (None, m.partition)]
            assert [(m.payload, m.partition, m.transaction_id, m.headers) for m in got] == [
                (v, p or "", k, h or None) for v, _, p, k, h, _ in wanted
            ]
            assert [m.start_time is None for m in got] == [t is None for *_, t in wanted]


def test_the_fields_of_a_contract_are_encoded_by_its_codec() -> None:
    fields = (Field("id", "int64"), Field("name", "string"))
    typed = Format(QueueContract(1, "plain", fields), "1.2")
    rows = pa.record_batch(
        [pa.array([1, 2]), pa.array(["a", "b"]), pa.array(["k", None])], names=["id", "name", "key"]
    )
    page, faults = judged(rows, queue="plain", typed=typed)
    assert faults == {}
    (_, block), *rest = blocks_of(page, "plain", QUEUES, Limits())
    assert rest == []
    first, second = block
    assert typed.decode(first.payload, first.headers) == (1, "a")
    assert second.headers == typed.headers == {"codec": "msgpack", "contract": "1.2"}
    assert (first.transaction_id, second.transaction_id) == ("k", None)


def test_a_row_that_is_not_as_its_contract_says_is_bad() -> None:
    typed = Format(QueueContract(1, "plain", (Field("id", "int64"),)))
    rows = pa.record_batch([pa.array([1, None])], names=["id"])
    _, faults = judged(rows, queue="plain", typed=typed)
    assert list(faults) == [1]
    assert "id" in faults[1]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary(), pa.string(), pa.binary()])
def test_values_come_in_any_of_arrows_types_for_them(kind: pa.DataType) -> None:
    rows = pa.record_batch([pa.array(["a"]).cast(kind)], names=["value"])
    assert messages(written(rows, queue="plain")) == [("plain", Message(b"a"))]
