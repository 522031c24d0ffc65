"""Options: every fault names the option, and says what would be right."""

import pytest

from forebay.model import Misconfigured
from forebay.spark.options import OPTIONS, Options, Use, read_options

URL = {"url": "sqlite:///log.db"}
QUEUE = {**URL, "queue": "orders"}


def test_names_come_in_any_case_and_what_spark_adds_is_left_alone() -> None:
    given = {"URL": "sqlite:///log.db", "STARTINGOFFSETS": "Earliest", "queue": "orders", "path": "x"}
    assert read_options(given, "stream") == Options(
        url="sqlite:///log.db", queue="orders", startingOffsets="earliest"
    )


@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        ({"queue": "orders"}, "`url` is missing", "address of a log"),
        (URL, "nothing says which queue", "`queue`, `subscribe` or"),
        ({**QUEUE, "startingOfsets": "latest"}, "no option `startingOfsets`", "`startingOffsets`"),
        ({**QUEUE, "zzz": "1"}, "no option `zzz`", "known are url"),
        ({**QUEUE, "subscribe": "a"}, "`queue` and `subscribe` both", "one of them"),
        ({**URL, "subscribe": "a,,b"}, "`subscribe` is '', which is no name of a queue", "visible"),
        ({**URL, "subscribePattern": "("}, "no regular expression", "orders-"),
        ({**QUEUE, "startingOffsets": "first"}, "neither earliest, latest nor JSON", '{"orders": 1200'),
        ({**QUEUE, "startingOffsets": "[1]"}, "no JSON object", '{"orders": 1200'),
        ({**QUEUE, "startingOffsets": '{"orders": 0}'}, "says 0 for 'orders'", "1200"),
        ({**QUEUE, "startingOffsets": '{"orders": true}'}, "says True for 'orders'", "1200"),
        ({**QUEUE, "startingTimestamp": "soon"}, "`startingTimestamp` is 'soon', which is no time", "ISO|Z"),
        ({**QUEUE, "startingTimestamp": "2026-01-31T12:00:00"}, "no time zone", "with its zone"),
        ({**QUEUE, "startingTimestamp": "999999999999999"}, "after the year 9999", "milliseconds"),
        ({**QUEUE, "startingTimestamp": "1", "startingOffsets": "latest"}, "both say", "one of them"),
        ({**QUEUE, "endingOffsets": "earliest"}, "before all messages", "latest or JSON"),
        ({**QUEUE, "partition": "p", "partitionPrefix": "p"}, "both say which partitions", "one of them"),
        ({**QUEUE, "partitionPrefix": ""}, "`partitionPrefix` is '', which is empty", "leave it out"),
        ({**QUEUE, "maxOffsetsPerTrigger": "0"}, "`maxOffsetsPerTrigger` is '0'", "from 1 to"),
        ({**QUEUE, "minPartitions": "many"}, "`minPartitions` is 'many'", "whole number"),
        ({**QUEUE, "failOnDataLoss": "no"}, "neither true nor false", "one of them"),
        ({**QUEUE, "mode": "tail"}, "`mode` is 'tail', which is not known", "log, lease"),
        ({**QUEUE, "mode": "lease"}, "needs the group", "groupId"),
        ({**URL, "table": "letters"}, "`table` is 'letters'", "dead"),
        ({**QUEUE, "groupId": " "}, "no name of a group", "visible"),
        ({**QUEUE, "columns": "seq,seq"}, "one twice", "commas"),
        ({**QUEUE, "contract": ""}, "is empty", "leave it out"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(given: dict[str, str], text: str, hint: str) -> None:
    with pytest.raises(Misconfigured, match=text) as caught:
        read_options(given)
    assert caught.value.hint
    assert any(part in caught.value.hint for part in hint.split("|"))


@pytest.mark.parametrize(
    ("given", "use", "text"),
    [
        ({**QUEUE, "maxOffsetsPerTrigger": "5"}, "batch", "says nothing to a batch read"),
        ({**QUEUE, "endingOffsets": "latest"}, "stream", "says nothing to a stream"),
        ({**QUEUE, "partition": "p"}, "stream", "says nothing to a stream"),
        ({**QUEUE, "mode": "lease", "groupId": "g"}, "batch", "is for streams"),
        ({**URL, "table": "dead"}, "stream", "not as a stream"),
        ({**URL, "table": "dead", "minPartitions": "2"}, "batch", "says nothing to a table"),
        (
            {**QUEUE, "mode": "lease", "groupId": "g", "startingOffsets": "latest"},
            "stream",
            "nothing to a stream with mode lease",
        ),
    ],
)
def test_an_option_for_another_use_is_refused(given: dict[str, str], use: Use, text: str) -> None:
    with pytest.raises(Misconfigured, match=text):
        read_options(given, use)


def test_times_are_milliseconds_as_in_kafka_or_text() -> None:
    by_number = read_options({**QUEUE, "startingTimestamp": "1769860800000"})
    by_text = read_options({**QUEUE, "startingTimestamp": "2026-01-31T12:00:00Z"})
    assert by_number.startingTimestamp == by_text.startingTimestamp == 1_769_860_800_000_000


def test_a_pattern_is_for_the_whole_name() -> None:
    options = read_options({**URL, "subscribePattern": "order.*s"})
    assert options.matches("orders")
    assert not options.matches("orders-old")


def test_a_key_is_no_part_of_the_address() -> None:
    options = read_options({**QUEUE, "key": "secret"})
    assert options.credentials == {"key": "secret"}


def test_every_option_has_a_place_among_the_values() -> None:
    assert {option.name for option in OPTIONS} == set(Options.__struct_fields__)
