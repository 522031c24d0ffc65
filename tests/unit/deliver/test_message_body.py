"""Messages become requests: alone as they are, together as JSON."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.message_body import batches_of, make_request, request_id
from forebay.deliver.settings import DestinationSettings
from forebay.deliver.values import header
from forebay.model import Rejected
from forebay.store.values import Task
from forebay.warm.values import Lease

LEASE = Lease(1, "epoch", 1, 1, 1, 1, 0, 0)


def settings(**given: object) -> DestinationSettings:
    return msgspec.convert({"url": "https://a.example/hook?x=1"} | given, DestinationSettings)


def task(id: int, data: bytes, headers: dict[str, str] | None = None) -> Task:
    return Task(id, 1, data, 0, 0, 0, None, LEASE, 0, headers=headers)


@given(
    sizes=st.lists(st.integers(0, 50), max_size=60), most=st.integers(1, 10), bytes_max=st.integers(1, 100)
)
def test_batches_hold_all_tasks_in_order_within_their_bounds(
    sizes: list[int], most: int, bytes_max: int
) -> None:
    tasks = [task(number, b"x" * size) for number, size in enumerate(sizes)]
    rule = settings(body="json", batch_messages_max=most, batch_bytes_max=bytes_max)
    batches = batches_of(tasks, rule)
    assert [one for batch in batches for one in batch] == tasks
    for batch in batches:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(len(one.data) for one in batch) <= bytes_max


def test_alone_a_message_is_a_request_of_its_own() -> None:
    tasks = [task(1, b"\x00\xff"), task(2, b"")]
    assert batches_of(tasks, settings()) == [[tasks[0]], [tasks[1]]]
    made = make_request(tasks[:1], settings(method="PUT"))
    assert (made.method, made.target, made.body) == (b"PUT", b"/hook?x=1", b"\x00\xff")
    assert header(made.headers, b"content-type") == b"application/octet-stream"


def test_the_type_is_that_of_the_message_before_that_of_the_settings() -> None:
    mine = task(1, b"x", {"Content-Type": "text/a"})
    assert header(make_request([mine], settings(content_type="text/b")).headers, b"content-type") == b"text/a"
    other = task(1, b"x")
    assert (
        header(make_request([other], settings(content_type="text/b")).headers, b"content-type") == b"text/b"
    )


PAYLOADS = st.lists(st.recursive(st.integers() | st.text() | st.none(), st.lists, max_leaves=4), min_size=1)


@given(values=PAYLOADS, indent=st.none() | st.integers(0, 2))
def test_together_messages_are_an_array_or_lines(values: list[object], indent: int | None) -> None:
    tasks = [task(number, json.dumps(value, indent=indent).encode()) for number, value in enumerate(values)]
    assert json.loads(make_request(tasks, settings(body="json")).body) == values
    lines = make_request(tasks, settings(body="ndjson")).body.splitlines()
    assert [json.loads(line) for line in lines] == values


@pytest.mark.parametrize("payload", [b"", b"{", b"not json", b"\xff\xfe", b'{"a":1} {"b":2}', b'"\xff"'])
def test_what_is_not_json_is_named(payload: bytes) -> None:
    with pytest.raises(Rejected, match="message 2 isn't JSON"):
        make_request([task(1, b"1"), task(2, payload)], settings(body="json"))


def test_the_same_messages_have_the_same_id_and_others_another() -> None:
    one, two, three = (task(number, b"") for number in (1, 2, 3))
    assert request_id([one]) == "msg_1"
    assert request_id([one, two]) == request_id([one, two])
    ids = {request_id(batch) for batch in ([one, two], [one, three], [two, three], [one, two, three], [two])}
    assert len(ids) == 5
