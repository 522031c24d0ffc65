"""Flows are read with everything that is wrong with them, and where."""

import pickle
from pathlib import Path

import pytest

from forebay.spark.flows.spec import FLOWS_MAX, InvalidFlows, parse_flows, read_flows
from forebay.spark.flows.values import (
    Action,
    ArchiveSpec,
    LetterSource,
    ParquetSink,
    QueueSink,
    QueueSource,
    TimedSource,
)

SHOP = """\
store: postgresql://shop@db/queues
checkpoints: data/checkpoints
flows:
  - name: clean-orders
    type: TRANSFORM
    source: {queue: orders, group: cleaning, start: latest, rows_max: 500, on_loss: skip}
    actions:
      - {name: parse, rows: "shop.flows:parse", schema: "total DOUBLE"}
      - {name: total, sql: "SELECT * FROM input"}
      - {name: enrich, dataframe: "shop.flows:enrich"}
    sink: {queue: orders-clean}
    every: 500ms
    max_attempts: 5
    contract: tasks.yaml
  - name: poll
    type: TIMED_DATA_SOURCE
    source: {function: "shop.flows:poll"}
    sink: {queue: rates}
    every: 1m
  - name: letters
    type: ON_ERROR_DATA_SOURCE
    source: {dead: "orders*", group: "clean*"}
    sink: {queue: attention}
  - name: files
    type: DATA_SINK
    source: {queue: orders-clean}
    sink: {parquet: data/orders, partition_by: [day]}
    once: true
archive: {path: data/archive, queues: [orders], every: 1h, after: 10m, wait_max: 2d}
"""


def flow(*lines: str) -> str:
    return "flows:\n  - " + "\n    ".join(lines) + "\n"


def transform(*lines: str) -> str:
    return flow("name: a", "type: TRANSFORM", "source: {queue: in}", "sink: {queue: out}", *lines)


def faults(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(InvalidFlows) as caught:
        parse_flows(text, "flows.yaml")
    assert all(fault.hint for fault in caught.value.faults), "every fault says what would be right"
    return [(fault.line, fault.column, fault.message) for fault in caught.value.faults]


def test_flows_are_read_as_they_are_written() -> None:
    found = parse_flows(SHOP)
    clean, poll, letters, files = found.flows
    assert (found.store, found.checkpoints) == ("postgresql://shop@db/queues", "data/checkpoints")
    assert clean.source == QueueSource(
        queue="orders", group="cleaning", start="latest", rows_max=500, on_loss="skip"
    )
    assert clean.actions == (
        Action(name="parse", kind="rows", text="shop.flows:parse", schema="total DOUBLE", line=8, column=9),
        Action(name="total", kind="sql", text="SELECT * FROM input", line=9, column=9),
        Action(name="enrich", kind="dataframe", text="shop.flows:enrich", line=10, column=9),
    )
    assert (clean.sink, clean.every, clean.max_attempts, clean.contract) == (
        QueueSink(queue="orders-clean"), 0.5, 5, "tasks.yaml",
    )  # fmt: skip
    assert clean.labels == {"flow": "clean-orders", "flow_type": "TRANSFORM", "action": "enrich"}
    assert (poll.source, poll.every) == (TimedSource(function="shop.flows:poll"), 60)
    assert letters.source == LetterSource(dead="orders*", group="clean*")
    assert (files.sink, files.once) == (ParquetSink(folder="data/orders", partition_by=("day",)), True)
    assert found.archive == ArchiveSpec(
        path="data/archive", queues=("orders",), every=3600, after=600, wait_max=2 * 86_400
    )


def test_what_is_not_said_has_a_default() -> None:
    (found,) = parse_flows(transform()).flows
    assert found.source == QueueSource(queue="in", group="a", start="earliest", rows_max=10_000)
    assert (found.actions, found.every, found.once, found.max_attempts) == ((), 1.0, False, 3)
    assert found.labels == {"flow": "a", "flow_type": "TRANSFORM"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (1, 1, "there are no flows")),
        ("store: sqlite:///a.db\n", (1, 1, "there are no flows")),
        ("flows: 3", (1, 8, "flows is a plain value, not a list")),
        ("flows: [", (1, 9, "it is not YAML: expected the node content, but found '<stream end>'")),
        (transform("everi: 3"), (6, 5, "flow 'a': unknown key 'everi'")),
        (transform("every: 3x"), (6, 12, "flow 'a': every: '3x' is not a duration")),
        (transform("max_attempts: 0"), (6, 19, "flow 'a': max_attempts: '0' is out of range")),
        (transform("once: yes"), (6, 11, "flow 'a': once: 'yes' is neither true nor false")),
        (transform("actions: [{name: b}]"), (6, 15, "flow 'a': action 1 says nothing to do")),
        (
            transform("actions: [{name: b, sql: SELECT 1, rows: 'm:f'}]"),
            (6, 15, "flow 'a': action 1 says rows and sql"),
        ),
        (transform("actions: [{sql: SELECT 1}]"), (6, 15, "flow 'a': action 1 has no name")),
        (
            transform("actions: [{name: b, sql: x}, {name: b, sql: y}]"),
            (6, 41, "flow 'a': action 2: there is an action 'b' already"),
        ),
        (
            transform("actions: [{name: b, rows: parse}]"),
            (6, 31, "flow 'a': action 1: rows: 'parse' names no function"),
        ),
        (
            transform("actions: [{name: b, sql: x, schema: y}]"),
            (6, 41, "flow 'a': action 1: schema is for rows alone"),
        ),
        (flow("name: a", "type: TRANSFORM", "sink: {queue: b}"), (2, 5, "flow 'a' has no source")),
        (flow("name: a", "type: TRANSFORM", "source: {queue: b}"), (2, 5, "flow 'a' has no sink")),
        (
            flow("name: a", "type: TRANSFROM", "source: {queue: b}", "sink: {queue: c}"),
            (3, 11, "flow 'a': there is no type 'TRANSFROM'"),
        ),
        (
            flow("name: a b", "type: TRANSFORM", "source: {queue: b}", "sink: {queue: c}"),
            (2, 11, "flow 'a b': 'a b' can't be a name"),
        ),
        (
            flow("name: a", "type: TRANSFORM", "source: {queue: b}", "sink: {parquet: c}"),
            (5, 11, "flow 'a': sink of a TRANSFORM has no queue"),
        ),
        (
            flow("name: a", "type: DATA_SINK", "source: {queue: b}", "sink: {http: c}"),
            (5, 12, "flow 'a': sink: unknown key 'http'"),
        ),
        (
            flow("name: a", "type: DATA_SINK", "source: {queue: b}", "sink: {parquet: 's3://b/c'}"),
            (5, 21, "flow 'a': sink: parquet: 's3://b/c' is not on this machine"),
        ),
        (
            flow("name: a", "type: TRANSFORM", "source: {queue: b}", "sink: {queue: b}"),
            (5, 11, "flow 'a': it writes to the queue that it reads"),
        ),
        (
            flow("name: a", "type: TIMED_DATA_SOURCE", "source: {function: 'm:f'}", "sink: {queue: b}"),
            (2, 5, "flow 'a': nothing says how often it ticks"),
        ),
        (
            flow("name: a", "type: TIMED_DATA_SOURCE", "source: {queue: b}", "sink: {queue: c}", "every: 1s"),
            (4, 14, "flow 'a': source of a TIMED_DATA_SOURCE: unknown key 'queue'"),
        ),
        (
            flow("name: a", "type: ON_ERROR_DATA_SOURCE", "source: {dead: '*'}", "sink: {queue: b}"),
            (5, 11, "flow 'a': it would take the dead letters of the queue that it writes to"),
        ),
        ("flows: []\narchive: {every: 1h}", (2, 10, "archive: it has no path")),
        ("store: memory://\nflows: []", (1, 8, "store: it is no address of a log that processes can share")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, found: tuple[int, int, str]) -> None:
    assert found in faults(text)


def test_all_faults_are_said_at_once_in_the_order_of_the_file() -> None:
    text = transform("every: 3x", "once: 7") + flow("name: a", "type: DATA_SINK")[len("flows:\n") :]
    assert [line for line, _, _ in faults(text)] == [6, 7, 8, 8, 8]


def test_two_flows_can_have_neither_one_name_nor_one_group() -> None:
    second = "  - {name: a, type: TRANSFORM, source: {queue: x}, sink: {queue: y}}\n"
    third = "  - {name: c, type: TRANSFORM, source: {queue: in, group: a}, sink: {queue: z}}\n"
    assert faults(transform() + second + third) == [
        (6, 12, "two flows are called 'a'"),
        (7, 40, "flow 'c': flow 'a' reads queue 'in' as group 'a', too"),
    ]


def test_flows_are_bounded() -> None:
    entry = "  - {name: %d, type: TRANSFORM, source: {queue: a, group: %d}, sink: {queue: b}}\n"
    many = "flows:\n" + "".join(entry % (number, number) for number in range(FLOWS_MAX + 1))
    assert faults(many) == [(2, 3, f"flows has {FLOWS_MAX + 1} entries")]


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidFlows, match="it can't be read: No such file") as caught:
        read_flows(tmp_path / "flows.yaml")
    assert pickle.loads(pickle.dumps(caught.value)).faults == caught.value.faults


def test_several_faults_are_called_what_they_are() -> None:
    with pytest.raises(InvalidFlows, match=r"the flows are wrong:\n  flows\.yaml:6:12: "):
        parse_flows(transform("every: 3x", "once: 7"))


def test_rows_do_not_go_where_those_go_that_fail() -> None:
    source = "source: {function: 'm:f'}"
    text = flow("name: a", "type: TIMED_DATA_SOURCE", source, "sink: {queue: a-failed}", "every: 1m")
    assert faults(text) == [(5, 11, "flow 'a': queue 'a-failed' is for its rows that fail")]
    (found,) = parse_flows(transform().replace("out", "a-failed")).flows
    assert found.sink == QueueSink(queue="a-failed"), "those of a queue have its own letters"
