"""Which versions of its state a stream has seen."""

from __future__ import annotations

import pytest

from forebay.api.queen import state
from forebay.api.queen.state import Reads, Shard, record_key
from forebay.log.values import Kept
from forebay.model import Rejected

SHARD = Shard("query", 1, "partition")


def kept(key: str, version: int = 1) -> Kept:
    return Kept(record_key(SHARD, key), b"1", version, 0, None)


def test_what_was_read_whole_says_of_every_key_whether_it_was_there() -> None:
    reads = Reads()
    assert reads.expected(SHARD, "a") is None
    reads.note(SHARD, [kept("a", 3)], asked=None)
    assert (reads.expected(SHARD, "a"), reads.expected(SHARD, "b")) == (3, 0)
    assert reads.expected(SHARD._replace(generation=2), "a") is None


def test_what_was_read_in_part_says_something_of_that_part() -> None:
    reads = Reads()
    reads.note(SHARD, [kept("a", 3)], asked=["a", "b"])
    reads.note_some(SHARD, [kept("c", 4)])
    found = [reads.expected(SHARD, key) for key in "abcd"]
    assert found == [3, 0, 4, None]


def test_who_holds_a_partition_may_write_on_and_who_flushes_must_read_again() -> None:
    reads = Reads()
    reads.note(SHARD, [kept("a", 3)], asked=None)
    assert not reads.is_outdated(SHARD, "a")
    reads.written(SHARD, ["a"])
    assert reads.expected(SHARD, "a") is None
    assert reads.is_outdated(SHARD, "a")
    reads.note(SHARD, [kept("a", 4)], asked=None)
    assert (reads.expected(SHARD, "a"), reads.is_outdated(SHARD, "a")) == (4, False)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_KEYS_MAX", 10)
    reads = Reads()
    for number in range(5):
        shard = SHARD._replace(partition=f"{number}")
        reads.note(shard, [], asked=["a", "b", "c"])
    known = [reads.expected(SHARD._replace(partition=f"{number}"), "a") for number in range(5)]
    assert known == [None, None, 0, 0, 0]


@pytest.mark.parametrize("key", ["", "\0", "x" * 901])
def test_a_key_that_can_t_be_kept_is_refused(key: str) -> None:
    with pytest.raises(Rejected):
        record_key(SHARD, key)


def test_keys_of_one_partition_never_begin_like_those_of_another() -> None:
    other = Shard("query", 1, "partition2")
    assert not record_key(other, "k").startswith(SHARD.prefix)
