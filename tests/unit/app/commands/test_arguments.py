"""Words of the command line become values, or usage errors."""

import argparse

import pytest

from forebay.app.commands.arguments import count, duration, id_range, ids_of, moment, pair, place, ranges
from forebay.model import Rejected, SystemClock

FIRST = 35184372088833


def test_durations_and_pairs_are_read() -> None:
    assert duration("1h30m") == 5400
    assert pair("flow=a=b") == ("flow", "a=b")
    assert count("12") == 12


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (duration, "soon", "'soon' is not a duration"),
        (pair, "flow", "not name=value"),
        (pair, "=x", "not name=value"),
        (count, "0", "from 1 on"),
        (count, "-3", "from 1 on"),
        (count, "9" * 30, "from 1 on"),
        (moment, "yesterday", "no time"),
        (moment, "2026-01-31T12:00:00", "has no time zone"),
        (id_range, "x", "not a number"),
        (id_range, "7", "out of range"),
        (id_range, f"{FIRST + 1}-{FIRST}", "ends before it begins"),
    ],
)
def test_a_bad_word_is_a_usage_error(read: object, text: str, words: str) -> None:
    assert callable(read)
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        read(text)


def test_a_place_is_an_end_of_the_queue_a_time_or_how_long_ago() -> None:
    assert place("earliest") == "earliest"
    assert place("latest") == "latest"
    assert place("1970-01-01T00:00:01Z") == 1_000_000
    ago = place("10m")
    assert isinstance(ago, int)
    assert abs(SystemClock().now() - 600_000_000 - ago) < 60_000_000


def test_ids_are_printed_as_ranges_that_are_read_back() -> None:
    ids = [FIRST + 5, FIRST, FIRST + 1, FIRST + 2, FIRST + 9]
    printed = ranges(ids)
    assert printed == [f"{FIRST}-{FIRST + 2}", str(FIRST + 5), str(FIRST + 9)]
    assert ids_of(map(id_range, printed)) == sorted(ids)


def test_a_range_that_is_too_long_is_refused_before_it_is_made() -> None:
    with pytest.raises(Rejected, match="more than 1,000,000 message ids"):
        ids_of([id_range(f"{FIRST}-{FIRST + 10**12}")])
