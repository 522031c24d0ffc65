"""Processes that Spark keeps are settled into, once; those of others are left alone."""

import ctypes
import gc
from collections.abc import Iterator

import pytest

from forebay.spark.keeping import KEPT_BYTES, settle_in


class Library:
    """A C library that notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}

    def mallopt(self, option: int, value: int) -> int:
        self.told[option] = value
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    found = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: found)
    settle_in.cache_clear()
    yield found
    settle_in.cache_clear()
    gc.unfreeze()


def test_a_process_that_spark_keeps_does_not_collect_what_it_imported(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle_in()
    frozen = gc.get_freeze_count()
    assert frozen > 1_000
    assert library.told[-1] == KEPT_BYTES
    later = [object()]
    settle_in()
    assert gc.get_freeze_count() <= frozen, "what comes later is garbage as usual"
    assert gc.is_tracked(later)


def test_another_c_library_does_as_it_does(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    settle_in()
    assert not library.told


def test_a_process_of_others_is_left_alone(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    before = gc.get_freeze_count()
    settle_in()
    assert gc.get_freeze_count() == before
    assert not library.told
