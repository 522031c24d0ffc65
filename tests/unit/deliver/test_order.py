"""Remote writes keep their order, however their headers are written; nothing else does."""

import pytest

from forebay.deliver.entry_data import encode_request, redriven_data
from forebay.deliver.order import order_rule
from forebay.deliver.values import Headers, Request

NAME = b"X-Prometheus-Remote-Write-Version"
TYPE = (b"Content-Type", b"application/x-protobuf")
is_ordered = order_rule("auto")


def entry(*headers: tuple[bytes, bytes], body: bytes = b"samples", target: bytes = b"/api/v1/write") -> bytes:
    made: Headers = headers
    return encode_request(Request(b"POST", target, made, body))


@pytest.mark.parametrize("name", [NAME, NAME.lower(), NAME.upper(), NAME.title().swapcase()])
@pytest.mark.parametrize("before", [0, 4_000, 4_200, 32_000])
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_remote_write_is_ordered_wherever_its_header_is(name: bytes, before: int, size: int) -> None:
    data = entry((b"Authorization", b"x" * before), TYPE, (name, b"0.1.0"), body=bytes(size))
    assert is_ordered(data)
    assert is_ordered(redriven_data(data, "an-id"))


@pytest.mark.parametrize("size", [0, 100_000])
def test_the_name_in_a_body_a_path_or_a_value_orders_nothing(size: int) -> None:
    assert not is_ordered(entry(TYPE, body=b"." + NAME + bytes(size)))
    assert not is_ordered(entry(TYPE, body=bytes(size), target=b"/?" + NAME))
    assert not is_ordered(entry((b"Accept", b" " + NAME), body=bytes(size)))
    assert not is_ordered(entry((b"A" + NAME, b"1"), body=bytes(size)))


@pytest.mark.parametrize("data", [b"", b"text", NAME, b"x" * 5_000, NAME + bytes(5_000)])
def test_bytes_that_are_no_request_are_not_ordered(data: bytes) -> None:
    assert not is_ordered(data)


def test_strict_and_none_look_at_nothing() -> None:
    assert order_rule("strict")(b"text")
    assert not order_rule("none")(entry((NAME, b"0.1.0")))
