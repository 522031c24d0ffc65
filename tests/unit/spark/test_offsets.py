"""Planning: never a gap, never an overlap, and no queue waits for another's backlog."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.spark.offsets import Offset, Stretch, admit, split

_NAMES = st.sampled_from(["a", "b", "c", "d"])
_PLACES = st.integers(1, 2_000)
_STRETCHES = st.dictionaries(_NAMES, st.tuples(_PLACES, st.integers(0, 500))).map(
    lambda found: [Stretch(name, first, first + count) for name, (first, count) in found.items()]
)
_BACKLOGS = st.dictionaries(_NAMES, st.tuples(_PLACES, st.integers(0, 500)), min_size=1)


@given(_STRETCHES, st.integers(1, 40), st.integers(1, 100))
def test_the_parts_of_a_stretch_are_adjacent_and_whole(
    stretches: list[Stretch], least: int, most: int
) -> None:
    parts = split(stretches, least, most)
    total = sum(map(len, stretches))
    assert all(1 <= len(part) <= most for part in parts)
    assert len(parts) >= min(least, total)
    for stretch in stretches:
        found = [seq for part in parts if part.queue == stretch.queue for seq in range(part.first, part.end)]
        assert found == list(range(stretch.first, stretch.end))


@given(_BACKLOGS, st.integers(1, 1_000))
def test_what_is_admitted_is_fair_and_within_the_limit(
    backlogs: dict[str, tuple[int, int]], limit: int
) -> None:
    start = {name: first for name, (first, _) in backlogs.items()}
    latest = {name: first + count for name, (first, count) in backlogs.items()}
    end = admit(start, latest, limit)
    taken = {name: end[name] - start[name] for name in end}
    assert all(0 <= taken[name] <= latest[name] - start[name] for name in taken)
    assert sum(taken.values()) == min(limit, sum(latest.values()) - sum(start.values()))
    # Whoever was not given all it has was given as much as anybody, but for one message.
    hungry = [name for name in taken if end[name] < latest[name]]
    assert all(taken[name] + 1 >= max(taken.values()) for name in hungry)


@given(_BACKLOGS, st.integers(1, 3))
def test_batch_after_batch_everything_is_read_once(backlogs: dict[str, tuple[int, int]], limit: int) -> None:
    start = {name: first for name, (first, _) in backlogs.items()}
    latest = {name: first + min(count, 20) for name, (first, count) in backlogs.items()}
    place, batches = dict(start), 0
    while (end := admit(place, latest, limit)) != place:
        place, batches = end, batches + 1
    assert place == latest
    assert batches == -(-(sum(latest.values()) - sum(start.values())) // limit)


def test_queues_take_turns_where_there_is_less_than_a_message_for_each() -> None:
    place = {"a": 1, "b": 1, "c": 1}
    latest = {"a": 1_000, "b": 1_000, "c": 1_000}
    for _ in range(30):
        place = admit(place, latest, 1)
    assert place == {"a": 11, "b": 11, "c": 11}


def test_without_a_limit_everything_is_admitted() -> None:
    assert admit({"a": 1, "b": 5}, {"a": 9, "b": 5}, None) == {"a": 9, "b": 5}


def test_an_offset_comes_back_from_json_as_it_was() -> None:
    offset = Offset(queues={"a": 3}, numbers={"a": 1}, group="g", at="x", began={"a": 1}, skipped={"a": 2})
    assert Offset.of(offset.as_json()) == offset


def test_a_queue_that_a_batch_is_the_first_to_read_begins_where_the_batch_says() -> None:
    start = Offset(queues={"a": 3}, numbers={"a": 1})
    end = Offset(queues={"a": 3, "b": 9}, numbers={"a": 1, "b": 2}, began={"b": 4})
    assert start.stretches(end) == [Stretch("b", 4, 9)]


def test_tasks_are_small_unless_somebody_says_how_many_there_are() -> None:
    stretches = [Stretch("a", 1, 1_000_001)]
    assert len(split(stretches)) == 16
    assert len(split(stretches, 4)) == 4
    assert max(map(len, split(stretches, 2))) <= 262_144
