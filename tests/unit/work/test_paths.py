"""Settings by their paths: what is meant, what goes first, and every fault at once."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.model import Misconfigured
from forebay.work.paths import names_in, read_changes

QUEUES = {"emails": 1, "letters": 2}


def read(text: str, worker: str = "main") -> dict[str, dict[str, Any]]:
    return read_changes(text, service="shop", worker=worker, queues=QUEUES).queues


def processors(text: str, worker: str = "main") -> int | None:
    return read_changes(text, service="shop", worker=worker, queues=QUEUES).processors


def test_paths_may_be_nested_or_written_with_slashes() -> None:
    nested = """
shop:
  worker:
    queue:
      emails:
        max_processors: 4
        visibility_timeout: 30.5
        handle_seconds_max: 7200
        queue: {1: {batch_size: 50}}
"""
    flat = """
shop/worker/queue/emails/max_processors: 4
shop/worker/queue/emails: {visibility_timeout: 30.5, handle_seconds_max: 7200}
shop: {worker/queue/emails/queue/1/batch_size: 50}
"""
    settings = {"max_processors": 4, "visibility_seconds": 30.5, "handle_seconds_max": 7200, "batch_size": 50}
    expected = {"emails": settings}
    assert read(nested) == read(flat) == expected


def test_the_name_of_the_worker_is_for_all_its_queues_and_a_queues_own_goes_first() -> None:
    text = """
shop/worker/queue/emails/max_processors: 9
shop/worker/queue/main/max_processors: 2
shop/worker/queue/main/queue/2/batch_size: 7
"""
    assert read(text) == {"emails": {"max_processors": 9}, "letters": {"max_processors": 2, "batch_size": 7}}


def test_the_processors_of_a_worker_are_its_own_and_any_queue_may_have_them() -> None:
    text = "shop/worker/queue/main/max_processors: 4\nshop/worker/queue/main/queue/2/max_processors: 1\n"
    assert processors(text) == 4
    assert read(text) == {"emails": {"max_processors": 4}, "letters": {"max_processors": 1}}
    # By a queue's own name it is for the queue, also where the worker has the same name.
    named = "shop/worker/queue/emails/max_processors: 4\n"
    for worker in ("main", "emails"):
        assert processors(named, worker) is None
        assert read(named, worker) == {"emails": {"max_processors": 4}}


def test_a_file_may_be_about_others_too() -> None:
    text = "other/worker/queue/emails/max_processors: x\nshop/worker/queue/others/max_processors: 1\na: 1\n"
    assert read(text) == {}
    assert read("") == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", None),
        ("{}", None),
        ("shop: {}", None),
        ("a: 1", []),
        ("other/worker/queue/emails/max_processors: 1", []),
        ("shop/worker/queue/b/batch_size: 1\nshop/worker/queue/a/batch_size: 1", ["a", "b"]),
    ],
)
def test_whom_a_file_is_about_is_known(text: str, names: list[str] | None) -> None:
    assert names_in(text, service="shop") == names


def test_every_fault_is_named() -> None:
    text = """
shop/worker/queue/emails:
  max_processors: many
  visibility_timeout: 0
  handle_seconds_max: 1d
  batch_size: true
  retries: 3
  queue: {x: {batch_size: 1}}
"""
    with pytest.raises(Misconfigured) as caught:
        read(text)
    said = caught.value.message
    assert "shop/worker/queue/emails/max_processors: 'many' is no whole number" in said
    assert "visibility_timeout: a visibility timeout of 0 s can't be" in said
    assert "emails/handle_seconds_max: '1d' is no number" in said
    assert "batch_size: True is no whole number" in said
    assert "emails/retries: there is no such setting; there are max_processors" in said
    assert "emails/queue/x/batch_size: there is no such setting" in said


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "- x", "a: &a {b: *a}"])
def test_what_is_no_yaml_of_keys_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured):
        read(text)


@pytest.mark.parametrize("leaf", ["{x: 1}", "{}"])
def test_a_small_file_that_unfolds_without_end_is_refused(leaf: str) -> None:
    keys = "{{" + ", ".join(f"k{n}: *a{{}}" for n in range(10)) + "}}"
    lines = [f"a0: &a0 {leaf}", *(f"a{n}: &a{n} {keys.format(*[n - 1] * 10)}" for n in range(1, 10))]
    with pytest.raises(Misconfigured, match="has over 100000 keys"):
        read("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "shop/worker/queue/emails:\n  max_processors: 1\n  max_processors: 2",
            "shop/worker/queue/emails/max_processors is here twice, in lines 2 and 3",
        ),
        (
            "shop/worker/queue/emails: {batch_size: 1}\nshop/worker/queue/emails: {max_processors: 1}",
            "shop/worker/queue/emails is here twice, in lines 1 and 2",
        ),
        (
            "shop/worker/queue/emails: {batch_size: 1}\nshop:\n  worker/queue/emails:\n    batch_size: 2",
            "shop/worker/queue/emails/batch_size is here twice, in lines 1 and 4",
        ),
        (
            "shop/worker/queue/emails/queue: {1: {batch_size: 1}, '1': {batch_size: 1}}",
            "shop/worker/queue/emails/queue/1 is here twice, in lines 1 and 1",
        ),
        ("other:\n  a: 1\n  b: 2\n  a: 1", "other/a is here twice, in lines 2 and 4"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_both_lines(text: str, said: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read(text)
    assert caught.value.message == f"{said}: keep one of them"


def test_what_is_merged_may_be_said_again() -> None:
    text = """
usual: &usual {max_processors: 2, batch_size: 5}
shop/worker/queue:
  emails: {<<: *usual, batch_size: 50}
  letters: *usual
"""
    expected = {"max_processors": 2, "batch_size": 50}
    assert read(text) == {"emails": expected, "letters": {"max_processors": 2, "batch_size": 5}}
    again = text.replace("emails: {", "emails: &mine {").replace("letters: *usual", "letters: *mine")
    assert read(again) == {"emails": expected, "letters": expected}


@pytest.mark.parametrize("value", ["2024-99-99", "!x 1", "[!x 1]", "{? [a] : 1}"])
def test_what_cannot_be_read_is_refused(value: str) -> None:
    with pytest.raises(Misconfigured):
        read(f"shop/worker/queue/emails/batch_size: {value}")
