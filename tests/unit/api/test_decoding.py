"""Reading bodies: what comes twice is found, whatever it is written like, and payloads are left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.decoding import decode_json, decode_msgpack, decode_query, field_names
from forebay.api.routes.queues import PageQuery
from forebay.model import Rejected
from forebay.wire.forms import Item, SettleForm, TakeForm

FIELDS = field_names(Item)


def escaped(name: str, places: set[int]) -> str:
    """A name with some of its characters as escapes."""
    return "".join(f"\\u{ord(c):04x}" if i in places else c for i, c in enumerate(name))


names = st.sampled_from(["partition", "transaction_id"])
values = st.sampled_from(["a", "payload", "partition", "\\u0070", '\\"headers\\"'])
pairs = st.tuples(names, st.sets(st.integers(0, 13), max_size=2), values)
payloads = st.sampled_from(
    ["1", '{"payload": 1, "payload": 2}', '{"a": 1, "a": {"partition": ""}}', '"\\u0061"']
)
header_names = st.lists(
    st.tuples(st.sampled_from(["flow", "x"]), st.sets(st.integers(0, 3), max_size=1)), max_size=3
)


@st.composite
def items(draw: st.DrawFn) -> tuple[str, bool]:
    """An item as JSON, and whether a key of it comes twice."""
    drawn = draw(st.lists(pairs, max_size=3))
    headers = draw(st.none() | header_names)
    fields = [f'"payload": {draw(payloads)}', *(f'"{escaped(n, p)}": "{v}"' for n, p, v in drawn)]
    twice = len({name for name, _, _ in drawn}) < len(drawn)
    if headers is not None:
        listed = ", ".join(f'"{escaped(name, places)}": "v"' for name, places in headers)
        fields.append(f'"headers": {{{listed}}}')
        twice |= len({name for name, _ in headers}) < len(headers)
    order = draw(st.permutations(fields))
    return "{" + draw(st.sampled_from([",", ", "])).join(order) + "}", twice


@given(st.lists(items(), min_size=1, max_size=4))
def test_a_key_that_comes_twice_is_found_and_none_else(drawn: list[tuple[str, bool]]) -> None:
    body = f"[{','.join(text for text, _ in drawn)}]".encode()
    if any(twice for _, twice in drawn):
        with pytest.raises(Rejected, match="twice"):
            decode_json(body, list[Item], FIELDS, many=True)
    else:
        assert len(decode_json(body, list[Item], FIELDS, many=True)) == len(drawn)


@given(items())
def test_so_it_is_in_a_line(drawn: tuple[str, bool]) -> None:
    text, twice = drawn
    if twice:
        with pytest.raises(Rejected, match="twice"):
            decode_json(text.encode(), Item, FIELDS, many=True)
    else:
        assert isinstance(decode_json(text.encode(), Item, FIELDS, many=True), Item)


def test_a_payload_is_kept_as_it_was_written() -> None:
    payload = '{"n":  1.50,  "a": [1e3, "\\u00e9"]}'
    (item,) = decode_json(f'[{{"payload": {payload}}}]'.encode(), list[Item], FIELDS, many=True)
    assert bytes(item.payload) == payload.encode()


@pytest.mark.parametrize(
    ("form", "body", "detail", "hint"),
    [
        (TakeForm, {"queus": ["a"]}, "queus", "queues"),
        (TakeForm, {"queues": ["a"], "wait_secs": 1}, "wait_secs", "wait_seconds"),
        (SettleForm, {"done": [{"id": 1, "leas": "x"}]}, "$.done[0]", "lease"),
        (TakeForm, {"queues": ["a"], "count": "1"}, "$.count", "correct"),
    ],
)
def test_an_error_says_where_and_what_to_do(form: Any, body: Any, detail: str, hint: str) -> None:
    with pytest.raises(Rejected) as error:
        decode_json(json.dumps(body).encode(), form, field_names(form))
    assert detail in error.value.message
    assert hint in (error.value.hint or "")


def test_what_is_nested_deeply_is_refused_in_both_encodings() -> None:
    with pytest.raises(Rejected, match="deep"):
        decode_json(b'{"settings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", dict[str, Any])
    with pytest.raises(Rejected, match="deep"):
        decode_msgpack(b"\x91" * 100_000 + b"\x01", Any)


def test_a_query_is_read_by_its_form() -> None:
    assert decode_query(b"after=3&limit=10", PageQuery) == PageQuery(after=3, limit=10)
    assert decode_query(b"", PageQuery) == PageQuery()
    with pytest.raises(Rejected, match="twice"):
        decode_query(b"limit=1&limit=1", PageQuery)
