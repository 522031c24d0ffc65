"""Rows that fail are found, whichever they are; the others go through, in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.log.values import Group
from forebay.spark.flows.halving import DeadRow, RowsFail, TooManyDead, isolate
from forebay.spark.flows.place import Place, resume


def group(start: int, sought: int) -> Group:
    return Group(1, 1, "g", start, sought)


def run(
    bad: set[int], count: int, *, tries: int = 2, dead_max: int = 1000
) -> tuple[list[range], list[int], int]:
    calls = 0

    def attempt(start: int, stop: int) -> range:
        nonlocal calls
        calls += 1
        if bad & set(range(start, stop)):
            raise RowsFail("bad")
        return range(start, stop)

    def bury(seq: int, error: RowsFail) -> DeadRow:
        return DeadRow(seq, "act", str(error), tries)

    parts, dead = isolate(1, count + 1, attempt, bury, tries=tries, dead_max=dead_max)
    return parts, [row.seq for row in dead], calls


@given(st.integers(1, 200), st.data())
def test_exactly_the_bad_rows_are_dead_and_the_others_in_order(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(1, count), max_size=20))
    parts, dead, _ = run(bad, count)
    assert dead == sorted(bad)
    assert [row for part in parts for row in part] == [row for row in range(1, count + 1) if row not in bad]


def test_a_batch_that_goes_well_is_one_attempt_and_one_bad_row_costs_its_logarithm() -> None:
    assert run(set(), 10_000)[2] == 1
    assert run({7_777}, 10_000)[2] <= 2 + 2 * 14


def test_a_batch_that_fails_once_is_tried_again_whole() -> None:
    failures = iter([True, False])

    def attempt(start: int, stop: int) -> range:
        if next(failures):
            raise RowsFail("it was down")
        return range(start, stop)

    parts, dead = isolate(1, 11, attempt, lambda seq, _: DeadRow(seq, "", "", 1), tries=2)
    assert (parts, dead) == ([range(1, 11)], [])


def test_too_many_bad_rows_are_not_given_up() -> None:
    with pytest.raises(TooManyDead, match="over 5 rows of one batch fail; the last one: bad"):
        run(set(range(1, 100)), 100, dead_max=5)


def test_a_flow_goes_on_from_its_record_or_from_where_its_group_was_sent() -> None:
    known = Place(checkpoint="old", start=10, end=20, batches=3, group_start=10, group_sought=1)
    assert resume(None, group(5, 0), "new") == Place(checkpoint="new", start=5, end=5, line="new")
    assert resume(known, group(20, 2), "new") == known, "the last batch is done with"
    assert resume(known, group(10, 1), "new") == known, "a crash before the group was told"
    for sent_to in (group(10, 3), group(4, 3)):
        sent = resume(known, sent_to, "new")
        assert (sent.checkpoint, sent.start, sent.end, sent.batches) == (
            "new",
            sent_to.start,
            sent_to.start,
            3,
        )


def test_the_next_place_begins_where_the_last_one_ended() -> None:
    known = Place(checkpoint="c", start=10, end=20, batches=3, rows_in=19, rows_out=30, dead=1)
    after = known.after(25, rows_out=4, dead=1, at=9, group=group(20, 7))
    assert after == Place(
        checkpoint="c", start=20, end=25, batches=4, rows_in=24, rows_out=34, dead=2, at=9,
        group_start=20, group_sought=7,
    )  # fmt: skip
