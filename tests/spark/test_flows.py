"""Flows as users run them: a queue, actions, a queue or files; what fails; what is repeated."""

import json
import shutil
import threading
from collections.abc import Sequence

import msgspec
import pytest

from forebay.log.values import Position
from forebay.model import Message
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.spec import parse_flows
from forebay.spark.flows.values import FlowSpec
from forebay.spark.ranges import DataLoss
from tests.spark.shops import FUNCTIONS, Shop, killed_after_publishing, orders, wait_until


def flow(
    actions: Sequence[dict[str, str]] = (),
    *,
    type: str = "TRANSFORM",  # noqa: A002 - its name
    source: str = "{queue: orders}",
    sink: str = "{queue: clean}",
    more: str = "",
) -> FlowSpec:
    ends = f"source: {source}, sink: {sink}, actions: {json.dumps(actions)}"
    return parse_flows(f"flows: [{{name: cleaning, type: {type}, {ends}, once: true{more}}}]").flows[0]


def test_rows_go_through_every_kind_of_action_once_in_order_and_with_labels(shop: Shop) -> None:
    shop.push("orders", orders(7))
    made = flow(
        [
            {"name": "parse", "rows": f"{FUNCTIONS}:parse"},
            {"name": "sql", "sql": "SELECT *, 1 AS extra FROM input"},
            {"name": "enrich", "dataframe": f"{FUNCTIONS}:enrich"},
        ]
    )
    assert shop.run(made) is None
    found = shop.read("clean")
    assert [m.payload for m in found] == [b'{"order":%d,"total":10.0}!' % number for number in range(1, 8)]
    assert [m.transaction_id for m in found] == [f"order-{number}" for number in range(1, 8)]
    assert [m.partition for m in found] == ["p1", "p0"] * 3 + ["p1"]
    assert found[0].headers == {
        "trace": "t1", "flow": "cleaning", "flow_type": "TRANSFORM", "action": "enrich",
    }  # fmt: skip
    shop.push("orders", orders(3, first=8))
    assert shop.run(made) is None
    assert [m.transaction_id for m in shop.read("clean")] == [f"order-{number}" for number in range(1, 11)]
    done = shop.stats("orders", "cleaning")
    assert (done.done, done.ready, done.difference) == (10, 0, 0)
    assert (shop.numbers.rows_in, shop.numbers.rows_out) == (10, 10)


def test_rows_that_fail_one_by_one_are_dead_letters_and_the_rest_goes_on(shop: Shop) -> None:
    shop.push("orders", [*orders(3), Message(b"no JSON", transaction_id="odd"), *orders(2, first=4)])
    shop.push("orders", [Message(b'{"void": 1}'), Message(b'{"order": 9, "price": 1, "count": "x"}')])
    made = flow([{"name": "parse", "rows": f"{FUNCTIONS}:strict"}], more=", max_attempts: 2")
    assert shop.run(made) is None
    assert [m.transaction_id for m in shop.read("clean")] == [f"order-{number}" for number in range(1, 6)]
    bad, odd = shop.dead("orders", "cleaning")
    assert (bad.message().payload, bad.attempts) == (b"no JSON", 2)
    assert bad.reason.startswith("flow cleaning, action parse: JSONDecodeError: Expecting value")
    assert odd.reason.startswith("flow cleaning, action parse: TypeError:")
    books = shop.stats("orders", "cleaning")
    assert (books.done, books.dead, books.ready, books.difference) == (6, 2, 0, 0)
    assert (shop.numbers.rows_in, shop.numbers.rows_out, shop.numbers.dead) == (8, 5, 2)


def test_rows_on_which_sql_fails_are_found_by_halving(shop: Shop) -> None:
    bodies = [b"1", b"x"]
    shop.push("orders", [Message(body) for body in bodies])
    sql = "SELECT *, CAST(CAST(value AS STRING) AS INT) AS number FROM input"
    made = flow(
        [
            {"name": "number", "sql": sql},
            {"name": "last", "sql": "SELECT CAST(number * 2 AS STRING) AS value FROM input"},
        ],
        more=", max_attempts: 1",
    )
    assert shop.run(made) is None
    assert [m.payload for m in shop.read("clean")] == [b"2"]
    (letter,) = shop.dead("orders", "cleaning")
    assert letter.message().payload == b"x"
    assert letter.reason.startswith(
        "flow cleaning, action number: NumberFormatException: [CAST_INVALID_INPUT]"
    )
    assert shop.stats("orders", "cleaning").difference == 0


def test_what_is_wrong_with_a_flow_is_no_fault_of_its_rows(shop: Shop) -> None:
    shop.push("orders", orders(2))
    for sql, said in {
        "SELECT nothing AS value FROM input": "UNRESOLVED_COLUMN",
        "SELECT key FROM input": "gives no column `value`",
    }.items():
        error = shop.run(flow([{"name": "sql", "sql": sql}]))
        assert said in str(error)
    for action, said in {
        (("name", "look-up"), ("dataframe", f"{FUNCTIONS}:away")): "the log is away",
        (("name", "import"), ("rows", f"{FUNCTIONS}:absent")): "No module named 'no_such_module'",
    }.items():
        error = shop.run(flow([dict(action)]))
        assert said in str(error)
    assert not shop.dead("orders", "cleaning")
    assert shop.stats("orders", "cleaning").ready == 2


def test_what_was_published_is_not_published_again_whatever_spark_forgot(any_shop: Shop) -> None:
    """A crash between publishing and telling the group; then a checkpoint that is gone."""
    shop = any_shop
    shop.push("orders", [*orders(4), Message(b"bad")])
    made = flow([{"name": "twice", "rows": f"{FUNCTIONS}:twice"}])
    with killed_after_publishing():
        assert shop.run(made) is not None
    assert shop.stats("orders", "cleaning").ready == 5, "the group was not told"
    assert shop.run(made) is None
    shop.push("orders", orders(1, first=5))
    shutil.rmtree(shop.folder / "checkpoints")
    assert shop.run(made) is None
    keys = [f"order-{number}-{index}" for number in range(1, 6) for index in (0, 1)]
    assert [m.transaction_id for m in shop.read("clean")] == keys
    assert [letter.message().payload for letter in shop.dead("orders", "cleaning")] == [b"bad"]
    books = shop.stats("orders", "cleaning")
    assert (books.done, books.dead, books.ready, books.difference) == (5, 1, 0, 0)


def test_a_group_that_is_sent_back_is_read_again(shop: Shop) -> None:
    shop.push("orders", [Message(b"a"), Message(b"b"), Message(b"c")])
    made = flow()
    assert shop.run(made) is None
    group = shop.stats("orders", "cleaning").group
    shop.face(shop.face.log.seek(group, Position(2)))
    assert shop.run(made) is None
    assert [m.payload for m in shop.read("clean")] == [b"a", b"b", b"c", b"b", b"c"]


def test_what_expired_before_a_flow_came_is_skipped_and_counted_where_the_flow_says_so(shop: Shop) -> None:
    from forebay.spark.flows.starting import start  # noqa: PLC0415 - likewise

    queue = shop.face(shop.face.log.create_queue("orders", {"expire_seconds": 2 * 86_400}))
    shop.face(shop.face.log.create_group(queue, "cleaning"))
    shop.push("orders", [Message(b"a"), Message(b"b"), Message(b"c")])
    shop.trim_later(30 * 86_400)
    shop.push("orders", [Message(b"d"), Message(b"e")])
    with pytest.raises(DataLoss, match="messages 1 to 3 of queue 'orders' are gone"):
        start(shop.spark, flow(), shop.around(), shop.numbers)
    assert shop.run(flow(source="{queue: orders, on_loss: skip}")) is None
    assert [m.payload for m in shop.read("clean")] == [b"d", b"e"]
    assert (shop.numbers.rows_in, shop.numbers.rows_out, shop.numbers.lost) == (2, 2, 3)


def test_files_are_written_once_by_batch_and_partitioned(shop: Shop) -> None:
    shop.push("orders", orders(5))
    made = flow(
        [{"name": "typed", "rows": f"{FUNCTIONS}:typed", "schema": "number BIGINT"}],
        type="DATA_SINK",
        sink=f"{{parquet: '{shop.folder / 'files'}', partition_by: [partition]}}",
        more=", max_attempts: 1",
    )
    assert shop.run(made) is None
    shop.push("orders", [*orders(2, first=6), Message(b"odd")])
    assert shop.run(made) is None
    found = shop.spark.read.parquet(str(shop.folder / "files")).orderBy("seq")
    assert [(row["number"], row["partition"]) for row in found.collect()] == [
        (number, f"p{number % 2}") for number in range(1, 8)
    ]
    names = sorted(str(path.relative_to(shop.folder / "files")) for path in shop.folder.rglob("*.parquet"))
    assert names[0].startswith("partition=p0/cleaning-0000000000000000001-")
    books = shop.stats("orders", "cleaning")
    assert (books.done, books.dead, books.difference) == (7, 1, 0)
    assert (shop.numbers.rows_in, shop.numbers.rows_out) == (8, 7)


def test_a_timed_flow_does_a_tick_once(shop: Shop) -> None:
    from forebay.spark.flows.timed import TimedFlow  # noqa: PLC0415 - likewise

    made = flow(type="TIMED_DATA_SOURCE", source=f"{{function: '{FUNCTIONS}:poll'}}", more=", every: 1h")
    work = TimedFlow(shop.spark, made, shop.around(), shop.numbers)
    for tick in (7, 7, 6, 8):
        work(tick)
    assert [(m.payload, m.transaction_id) for m in shop.read("clean")] == [
        (b"one", "a-7"), (b'{"two":2}', None), (b"one", "a-8"), (b'{"two":2}', None),
    ]  # fmt: skip
    assert shop.read("clean")[0].headers == {"flow": "cleaning", "flow_type": "TIMED_DATA_SOURCE"}


def test_rows_of_a_timed_flow_that_fail_are_dead_letters_and_the_rest_goes_on(shop: Shop) -> None:
    made = flow(
        [{"name": "even", "rows": f"{FUNCTIONS}:half"}],
        type="TIMED_DATA_SOURCE",
        source=f"{{function: '{FUNCTIONS}:poll_left'}}",
        more=", every: 1h, max_attempts: 2",
    )
    assert shop.run(made) is None
    assert [m.payload for m in shop.read("clean")] == [b"left-0", b"left-2"]
    (letter,) = shop.dead("cleaning-failed", "cleaning")
    assert (letter.message().payload, letter.attempts) == (b"left-1", 2)
    assert letter.reason == "flow cleaning, action even: ValueError: left-1 is odd"
    books = shop.stats("cleaning-failed", "cleaning")
    assert (books.dead, books.ready, books.done, books.difference) == (1, 0, 0, 0)
    assert (shop.numbers.rows_in, shop.numbers.rows_out, shop.numbers.dead) == (3, 2, 1)


def test_a_tick_that_fails_is_tried_as_often_as_the_flow_says_and_then_left(shop: Shop) -> None:
    from forebay.spark.flows.timed import TimedFlow  # noqa: PLC0415 - likewise

    made = flow(
        type="TIMED_DATA_SOURCE",
        source=f"{{function: '{FUNCTIONS}:poll_nothing'}}",
        more=", every: 1h, max_attempts: 2",
    )
    for call in (0, 1):
        with pytest.raises(OSError, match=f"call {call}"):
            TimedFlow(shop.spark, msgspec.structs.replace(made, once=False), shop.around(), shop.numbers)(7)
    left = TimedFlow(shop.spark, msgspec.structs.replace(made, once=False), shop.around(), shop.numbers)
    left(7)
    with pytest.raises(OSError, match="call 2"):
        left(8)
    with pytest.raises(OSError, match="call 3"):
        TimedFlow(shop.spark, made, shop.around(), shop.numbers)(8)
    asked = TimedFlow(shop.spark, made, shop.around(), shop.numbers)
    with pytest.raises(OSError, match="call 4"):  # who runs it once has asked for it
        asked(8)


def test_flows_that_tick_at_the_same_time_see_their_own_rows_only(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have named their rows before either of them asks for them by that name."""
    from pyspark.sql.classic.dataframe import DataFrame  # noqa: PLC0415 - without Spark there is none

    from forebay.spark.flows.starting import start  # noqa: PLC0415 - likewise

    both, named = threading.Barrier(2, timeout=200), DataFrame.createOrReplaceTempView

    def name(frame: DataFrame, view: str) -> None:
        named(frame, view)
        both.wait()

    monkeypatch.setattr(DataFrame, "createOrReplaceTempView", name)
    flows = [
        flow(
            [{"name": "all", "sql": "SELECT * FROM input"}],
            type="TIMED_DATA_SOURCE",
            source=f"{{function: '{FUNCTIONS}:poll_{side}'}}",
            sink=f"{{queue: {side}}}",
            more=", every: 1h",
        )
        for side in ("left", "right")
    ]
    named_apart = [msgspec.structs.replace(each, name=each.queues[0]) for each in flows]
    running = [start(shop.spark, each, shop.around(), FlowNumbers()) for each in named_apart]
    wait_until(lambda: not any(each.is_active() for each in running), 250)
    assert [each.error() for each in running] == [None, None]
    for side in ("left", "right"):
        assert [m.payload.decode() for m in shop.read(side)] == [f"{side}-{number}" for number in range(3)]


def test_dead_letters_are_taken_once_and_stay(shop: Shop) -> None:
    shop.push("orders", [Message(b"bad", headers={"trace": "t"}), *orders(1)])
    parse = flow([{"name": "parse", "rows": f"{FUNCTIONS}:strict"}])
    assert shop.run(parse) is None
    letters = flow(type="ON_ERROR_DATA_SOURCE", source='{dead: "ord*"}', sink="{queue: attention}")
    assert shop.run(letters) is None
    assert shop.run(letters) is None
    (found,) = shop.read("attention")
    assert found.payload == b"bad"
    assert found.headers is not None
    assert found.headers["dead_reason"].startswith("flow cleaning, action parse: JSONDecodeError")
    assert {"trace": "t", "dead_queue": "orders", "dead_group": "cleaning"}.items() <= found.headers.items()
    (letter,) = shop.dead("orders", "cleaning")
    shop.face(shop.face.log.purge(shop.stats("orders", "cleaning").group, [letter.message_id]))
    assert shop.run(letters) is None
    assert not shop.face(shop.face.log.scan("flow-letters")), "what is gone is forgotten"


def test_letters_on_which_a_flow_fails_are_dead_letters_of_its_own_and_do_not_go_round(shop: Shop) -> None:
    shop.push("orders", [Message(b"bad"), *orders(1)])
    assert shop.run(flow([{"name": "parse", "rows": f"{FUNCTIONS}:strict"}])) is None
    letters = flow(
        [{"name": "mend", "rows": f"{FUNCTIONS}:twice"}],
        type="ON_ERROR_DATA_SOURCE",
        source='{dead: "*[ds]"}',
        sink="{queue: attention}",
        more=", max_attempts: 1",
    )
    for name in ("mending", "mending-too", "mending"):
        assert shop.run(msgspec.structs.replace(letters, name=name)) is None
    assert shop.read("attention") == []
    assert len(shop.dead("orders", "cleaning")) == 1, "it stays where it was"
    for name in ("mending", "mending-too"):
        (letter,) = shop.dead(f"{name}-failed", name)
        assert letter.reason == f"flow {name}, action mend: ValueError: it is bad"
        message = letter.message()
        assert (message.payload, (message.headers or {})["dead_queue"]) == (b"bad", "orders")
    assert shop.numbers.dead == 3, "one of the first flow, one of each of the others"
