"""A request that is too large is split so that both halves together say what it said."""

import contextlib
import gzip
import json
import zlib

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.encoding import ENCODINGS, decode, encode
from forebay.deliver.protobuf import read_records
from forebay.deliver.split import Unsplittable, split
from forebay.deliver.values import Headers, Request, header
from forebay.model import Rejected, TooLarge

PROTOBUF = b"application/x-protobuf"
NDJSON = b"application/x-ndjson"
JSON = b"application/json"


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def request(
    body: bytes, kind: bytes, encoding: str = "identity", target: bytes = b"/api/v1/write"
) -> Request:
    headers: Headers = ((b"Content-Type", kind), (b"X-Scope-OrgID", b"7"))
    if encoding != "identity":
        headers = (*headers, (b"Content-Encoding", encoding.encode()))
    return Request(b"POST", target, headers, encode(encoding, body))


def halves_of(whole: Request) -> tuple[bytes, bytes]:
    parts = split(whole)
    assert not isinstance(parts, Unsplittable), parts
    for part in parts:
        assert (part.method, part.target, part.headers) == (whole.method, whole.target, whole.headers)
    encoding = (header(whole.headers, b"content-encoding") or b"identity").decode()
    return decode(encoding, parts[0].body, 1 << 30), decode(encoding, parts[1].body, 1 << 30)


def reason_of(whole: Request) -> str:
    found = split(whole, decoded_bytes_max=1 << 20)
    assert isinstance(found, Unsplittable)
    return found.reason


SERIES = st.lists(st.binary(max_size=300), min_size=2, max_size=40)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(series=SERIES)
def test_a_remote_write_is_divided_between_its_series(encoding: str, series: list[bytes]) -> None:
    body = b"".join(field(1, one) for one in series)
    first, second = halves_of(request(body, PROTOBUF, encoding))
    assert first
    assert second
    assert first + second == body


def test_halves_are_about_half_by_size() -> None:
    body = b"".join(field(1, b"x" * size) for size in (10, 10, 10, 10, 1000, 10, 1000))
    first, second = halves_of(request(body, PROTOBUF, "snappy"))
    assert abs(len(first) - len(second)) <= 1024


def test_metadata_beside_series_is_in_one_half_and_scalars_are_in_both() -> None:
    body = field(1, b"a") + field(7, 300) + field(1, b"b") + field(3, b"meta")
    first, second = halves_of(request(body, PROTOBUF))
    assert first == field(1, b"a") + field(7, 300) + field(1, b"b")
    assert second == field(7, 300) + field(3, b"meta")


def test_both_halves_of_a_remote_write_2_have_the_symbols() -> None:
    symbols = field(4, b"") + field(4, b"__name__") + field(4, b"up")
    whole = request(
        symbols + field(5, b"one") + field(5, b"two"),
        b"application/x-protobuf;proto=io.prometheus.write.v2.Request",
        "snappy",
    )
    assert halves_of(whole) == (symbols + field(5, b"one"), symbols + field(5, b"two"))


@pytest.mark.parametrize("target", [b"/v1/metrics", b"/v1/traces", b"/otlp/v1/logs?x=1"])
def test_an_export_of_one_resource_is_divided_between_its_scopes(target: bytes) -> None:
    resource, url = field(1, b"resource"), field(3, b"schema")
    body = field(1, resource + field(2, b"one") + field(2, b"two") + url)
    first, second = halves_of(request(body, PROTOBUF, "gzip", target))
    assert first == field(1, resource + field(2, b"one") + url)
    assert second == field(1, resource + field(2, b"two") + url)


def test_an_export_of_one_scope_is_divided_between_its_spans() -> None:
    spans = [field(2, bytes([number]) * 20) for number in range(4)]
    scope = field(1, b"scope")
    body = field(1, field(1, b"resource") + field(2, scope + b"".join(spans)))
    first, second = halves_of(request(body, PROTOBUF, "identity", b"/v1/traces"))
    assert first == field(1, field(1, b"resource") + field(2, scope + spans[0] + spans[1]))
    assert second == field(1, field(1, b"resource") + field(2, scope + spans[2] + spans[3]))


def test_a_single_series_is_not_split() -> None:
    assert "fewer than two records" in reason_of(request(field(1, b"x" * 500), PROTOBUF, "snappy"))
    assert "fewer than two records" in reason_of(request(b"", PROTOBUF, "snappy"))


@pytest.mark.parametrize(
    "body",
    [b"\x0a\x05abc", b"\xff" * 20, b"\x0b", b"\x00\x01", b"\x0a", b"\x09abc", b"\x80", b'{"a":1}'],
)
def test_a_body_that_is_not_protobuf_is_not_split(body: bytes) -> None:
    assert "isn't protobuf" in reason_of(request(body, PROTOBUF))


@given(body=st.binary(max_size=200))
def test_no_body_does_harm(body: bytes) -> None:
    try:
        records = read_records(body)
    except Rejected:
        return
    assert b"".join(body[record.begin : record.end] for record in records) == body


@given(lines=st.lists(st.integers(), min_size=2, max_size=40))
def test_ndjson_is_divided_between_lines(lines: list[int]) -> None:
    body = b"".join(b'{"n": %d}\n' % line for line in lines)
    first, second = halves_of(request(body, NDJSON, "gzip"))
    assert first.endswith(b"\n")
    assert second
    assert first + second == body


def test_blank_lines_are_no_parts() -> None:
    assert "fewer than two lines" in reason_of(request(b'{"a":1}\n\n  \n', NDJSON))


def test_a_bulk_request_is_left_whole() -> None:
    whole = request(b'{"index":{}}\n{"a":1}\n', NDJSON, target=b"/logs/_bulk?refresh")
    assert "bulk" in reason_of(whole)


@given(
    items=st.lists(st.recursive(st.integers() | st.text() | st.none(), st.lists, max_leaves=5), min_size=2)
)
def test_a_json_array_is_divided_between_items_as_they_are_written(items: list[object]) -> None:
    body = (" [" + " , ".join(json.dumps(item) for item in items) + "]\n").encode()
    first, second = map(json.loads, halves_of(request(body, JSON, "zstd")))
    assert first
    assert second
    assert first + second == items


def test_numbers_in_json_keep_every_digit() -> None:
    first, second = halves_of(request(b"[1.10000000000000000001, 12345678901234567890123]", JSON))
    assert (first, second) == (b"[1.10000000000000000001]", b"[12345678901234567890123]")


def test_an_export_in_json_is_divided_within_its_object() -> None:
    first, second = halves_of(request(b'{"resourceLogs": [{"a":1}, {"a":2}]}', JSON, target=b"/v1/logs"))
    assert (first, second) == (b'{"resourceLogs":[{"a":1}]}', b'{"resourceLogs":[{"a":2}]}')


@pytest.mark.parametrize(
    ("path", "names"),
    [
        pytest.param(b"/v1/logs", ("resourceLogs", "scopeLogs", "logRecords"), id="logs"),
        pytest.param(b"/v1/traces", ("resourceSpans", "scopeSpans", "spans"), id="traces"),
        pytest.param(b"/v1/metrics", ("resourceMetrics", "scopeMetrics", "metrics"), id="metrics"),
    ],
)
def test_an_export_of_one_scope_in_json_is_divided_between_its_records(
    path: bytes, names: tuple[str, str, str]
) -> None:
    resources, scopes, records = names

    def export(*items: object) -> dict[str, object]:
        scope = {"scope": {"name": "s"}, records: list(items)}
        return {resources: [{"resource": {"a": 1.50}, scopes: [scope], "schemaUrl": "u"}]}

    first, second = map(
        json.loads, halves_of(request(json.dumps(export(1, 2, 3)).encode(), JSON, target=path))
    )
    assert (first, second) == (export(1, 2), export(3))
    assert "fewer than two items" in reason_of(request(json.dumps(export(1)).encode(), JSON, target=path))
    elsewhere = request(json.dumps(export(1, 2)).encode(), JSON, target=b"/in")
    assert "fewer than two items" in reason_of(elsewhere)


@pytest.mark.parametrize(
    "item", [b"1", b"{}", b'{"scopeLogs": 1}', b'{"scopeLogs": [1]}', b'{"scopeLogs": []}']
)
def test_an_export_in_json_that_isnt_one_is_not_split(item: bytes) -> None:
    assert reason_of(request(b'{"resourceLogs":[' + item + b"]}", JSON, target=b"/v1/logs"))


@pytest.mark.parametrize("body", [b"{}", b'{"a":[1,2],"b":1}', b'{"a":1}', b"17", b"[1,2", b"", b"\xff"])
def test_other_json_is_not_split(body: bytes) -> None:
    assert reason_of(request(body, JSON))


def test_a_body_of_another_type_is_not_split() -> None:
    assert "text/plain" in reason_of(request(b"a\nb\n", b"text/plain"))
    assert "no type" in reason_of(Request(b"POST", b"/", (), b"x"))


def test_an_unknown_encoding_is_not_split() -> None:
    whole = Request(b"POST", b"/", ((b"content-encoding", b"br"), (b"content-type", NDJSON)), b"x")
    assert "'br'" in reason_of(whole)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_bomb_is_not_unpacked(encoding: str) -> None:
    assert "more than 1Mi" in reason_of(request(bytes(64 << 20), PROTOBUF, encoding))


def test_a_snappy_body_that_only_claims_to_be_large_is_refused() -> None:
    lie = varint((1 << 32) - 1) + b"\x00a"
    assert "more than 1Mi" in reason_of(Request(b"POST", b"/", headers_of("snappy"), lie))


def headers_of(encoding: str) -> Headers:
    return ((b"Content-Type", PROTOBUF), (b"Content-Encoding", encoding.encode()))


@pytest.mark.parametrize(
    ("encoding", "whole"),
    [
        ("gzip", gzip.compress(b"abc" * 100)),
        ("zstd", zstandard.ZstdCompressor().compress(b"abc" * 100)),
        ("deflate", zlib.compress(b"abc" * 100)),
        ("snappy", bytes(cramjam.snappy.compress_raw(b"abc" * 100))),
    ],
    ids=["gzip", "zstd", "deflate", "snappy"],
)
def test_a_body_that_was_cut_short_is_not_taken_for_whole(encoding: str, whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(Rejected):
            decode(encoding, whole[:size], 1 << 20)
    assert decode(encoding, whole, 1 << 20) == b"abc" * 100


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_parts_one_after_the_other_are_one_body(encoding: str) -> None:
    assert decode(encoding, encode(encoding, b"abc") + encode(encoding, b"def"), 6) == b"abcdef"
    with pytest.raises(TooLarge):
        decode(encoding, encode(encoding, b"abc") + encode(encoding, b"def"), 5)
    with pytest.raises(Rejected):
        decode(encoding, encode(encoding, b"") * 20_000, 1 << 20)


@given(body=st.binary(max_size=100), encoding=st.sampled_from(ENCODINGS))
def test_bytes_of_any_kind_are_decoded_or_refused(body: bytes, encoding: str) -> None:
    with contextlib.suppress(Rejected):
        decode(encoding, body, 1 << 20)
    assert decode(encoding, encode(encoding, body), 1 << 20) == body


def test_digests_of_the_whole_are_left_out() -> None:
    headers = ((b"Content-Type", NDJSON), (b"Content-MD5", b"x"), (b"Digest", b"y"), (b"A", b"b"))
    parts = split(Request(b"POST", b"/", headers, b"1\n2\n"))
    assert not isinstance(parts, Unsplittable)
    assert parts[0].headers == ((b"Content-Type", NDJSON), (b"A", b"b"))
