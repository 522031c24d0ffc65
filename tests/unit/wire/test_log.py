"""The table of the log's verbs: all of the seam, written and read without loss."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from forebay.log.seam import Log, VersionConflict
from forebay.log.values import (
    Append,
    Claimed,
    Group,
    Position,
    Queue,
    QueueSettings,
    Record,
    Room,
    Settlement,
)
from forebay.model import Block, Conflict, Corrupt, Message, Rejected, mint
from forebay.wire.log import VERBS, encode_answer
from forebay.wire.problems import error_of, problem_of

QUEUE = Queue(1, "orders", QueueSettings(), 7)
GROUP = Group(3, 1, "workers", 1)


def test_every_verb_of_the_seam_is_there_but_for_opening_and_hanging_up() -> None:
    verbs = {name for name, _ in inspect.getmembers(Log, inspect.iscoroutinefunction)}
    assert set(VERBS) == {name for name in verbs if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("create_queue", ["q"], {"settings": {"ordered": True}}),
        ("create_group", [QUEUE, "g"], {"start": Position(4)}),
        ("seek", [GROUP, "latest"], {"dry_run": True}),
        ("seek", [GROUP, 5], {}),
        ("claim", [GROUP, "me", Room(1, 2)], {"partition": "p"}),
        ("reclaim", [GROUP, "me"], {"of": ["other"], "besides": [1, 2]}),
        ("locate", [QUEUE, [("p", "t")]], {}),
        ("publish", ["s", [mint()]], {"records": [Record("a", "b", b"c", version=0)]}),
        ("commit", [[Append.of(QUEUE, [Message(b"a", "p", "t")])]], {"atomic": True}),
    ],
)
def test_arguments_arrive_as_they_were_given(
    name: str, arguments: list[Any], options: dict[str, Any]
) -> None:
    verb = VERBS[name]
    named = verb.named(arguments, options)
    form = msgspec.msgpack.decode(verb.sent(named), type=verb.form)
    received = verb.received(form)
    assert {key: received[key] for key in named} == named
    assert received.keys() == inspect.signature(getattr(Log, name)).parameters.keys() - {"self"}


def test_what_is_not_an_argument_is_refused_at_once() -> None:
    with pytest.raises(TypeError):
        VERBS["advance"].named([GROUP], {"from": 4})
    with pytest.raises(Rejected):
        VERBS["create_queue"].sent({"name": "q", "settings": {"labels": object()}})
    with pytest.raises(Rejected):
        VERBS["advance"].sent({"group": GROUP, "to": 1 << 70})


def test_a_body_that_is_no_block_is_refused() -> None:
    verb = VERBS["stage"]
    sent = msgspec.msgpack.encode({"stage": "s", "appends": [{"queue": 1, "body": b"FB"}]})
    with pytest.raises(Rejected, match="this is no block"):
        verb.received(msgspec.msgpack.decode(sent, type=verb.form))


def test_damaged_blocks_are_told_with_their_places() -> None:
    claimed = Claimed(corrupt=[Corrupt("bits", hint="look", queue="orders", first=1, last=2)])
    found = VERBS["claim"].answer.decode(encode_answer(claimed, packed=True))
    (damage,) = found.corrupt
    assert (damage.message, damage.hint, damage.queue, damage.first, damage.last) == (
        "bits", "look", "orders", 1, 2,
    )  # fmt: skip
    assert b"bits" in encode_answer(claimed, packed=False)


def test_what_may_be_sent_twice_depends_on_what_it_is() -> None:
    settlement = Settlement(group=1, token=2, first=3, count=1, done=b"\x01")
    append = Append.of(QUEUE, Block.of([Message(b"a")]))
    repeatable: list[tuple[str, dict[str, Any]]] = [
        ("read", {}), ("stage", {}), ("advance", {}), ("commit", {"appends": [append]}),
        ("commit", {"settlements": [settlement], "id": mint()}), ("publish", {"ids": []}),
        ("seek", {"dry_run": True}),
    ]  # fmt: skip
    single: list[tuple[str, dict[str, Any]]] = [
        ("claim", {}), ("due", {}), ("reclaim", {}), ("delete_queue", {}), ("redrive", {}), ("seek", {}),
        ("commit", {"settlements": [settlement]}), ("publish", {"records": [Record("a", "b")]}),
    ]  # fmt: skip
    assert all(VERBS[name].may_repeat(named) for name, named in repeatable)
    assert not any(VERBS[name].may_repeat(named) for name, named in single)


def test_a_version_conflict_comes_back_with_what_was_found() -> None:
    told = VersionConflict("no", hint="read it again", space="s", key="k", found=3)
    found = error_of(problem_of(told))
    assert isinstance(found, VersionConflict)
    assert (str(found), found.space, found.key, found.found) == (str(told), "s", "k", 3)
    assert type(error_of(problem_of(Conflict("no")))) is Conflict


def test_damage_comes_back_with_its_place_once() -> None:
    told = Corrupt("bits", hint="look", queue="orders", first=1, last=2)
    found = error_of(problem_of(told))
    assert isinstance(found, Corrupt)
    assert (str(found), found.queue, found.first, found.last) == (str(told), "orders", 1, 2)
