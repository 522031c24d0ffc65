"""The column of flows: compact, equal for equal blocks, and enough to count whole blocks."""

import msgspec

from forebay.log.flows import FlowGroup, FlowTally, encode_flows
from forebay.log.intake import Intake
from forebay.log.values import Append, FlowCount, Queue, QueueSettings
from forebay.model import Block, Flow, Limits, Message, encode

QUEUE = Queue(3, "orders", QueueSettings(), 0)


def test_a_block_without_flows_has_no_column() -> None:
    assert encode_flows({}) is None
    assert encode_flows({Flow(): 5}) is None


def test_the_column_is_sorted() -> None:
    column = encode_flows({Flow("b"): 1, Flow("a", "t", "x"): 2, Flow(): 3})
    assert column is not None
    assert msgspec.msgpack.decode(column) == [["", "", "", 3], ["a", "t", "x", 2], ["b", "", "", 1]]


def test_the_column_is_of_what_is_written() -> None:
    messages = [Message(b"x", transaction_id=str(n // 2), headers={"flow": "ab"[n // 2]}) for n in range(4)]
    intake = Intake(Append.of(QUEUE, Block.of(messages)), QUEUE, Limits())
    assert intake.flows == encode_flows({Flow("a"): 1, Flow("b"): 1})
    intake.drop(((0, 7),))
    assert intake.flows == encode_flows({Flow("b"): 1})
    intake.drop(((0, 8),))
    assert intake.flows is None


def test_equal_columns_are_counted_together() -> None:
    tally = FlowTally()
    column = encode_flows({Flow("a"): 2, Flow(): 1})
    assert tally.add_group(FlowGroup(column, 3, 9, 50))
    assert tally.add_group(FlowGroup(None, 4, 10, 40))
    assert tally.counts() == [FlowCount(Flow(), 13, 40), FlowCount(Flow("a"), 6, 50)]


def test_a_cut_block_is_read_only_where_its_column_does_not_say_enough() -> None:
    tally = FlowTally()
    assert tally.add_group(FlowGroup(None, 1, 2, 10, cut=7))
    assert tally.add_group(FlowGroup(encode_flows({Flow("a"): 5}), 1, 3, 10, cut=7))
    assert not tally.add_group(FlowGroup(encode_flows({Flow("a"): 5, Flow(): 1}), 1, 3, 10, cut=7))
    body = encode(Block.of([Message(b"x", headers={"flow": name}) for name in "aab"]))
    tally.add_body(body, 2, 5)
    tally.add_body(body[:-1], 2, 5)
    assert [(c.flow.name, c.count, c.oldest_at) for c in tally.counts()] == [
        ("", 4, 5),
        ("a", 4, 5),
        ("b", 1, 5),
    ]
