"""Bad input over real sockets: every answer is a problem that says what and where, and nothing changes."""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import zstandard

from forebay.model import encode
from forebay.model.block import Block
from forebay.model.message import Message
from forebay.warm.values import Lease
from forebay.wire.leases import lease_text
from tests.integration.http_wire import Answer, ask, name_in_path
from tests.servers import ForebayServer

MESSAGES: Final = "/v1/queues/orders/messages"
JSON_BODIES: Final[dict[tuple[str, str], Any]] = {
    ("POST", MESSAGES): [{"payload": 1}],
    ("POST", "/v1/take"): {"queues": ["orders"]},
    ("POST", "/v1/queues/orders/take"): {"count": 1},
    ("POST", "/v1/done"): {"tasks": []},
    ("POST", "/v1/retry"): {"tasks": []},
    ("POST", "/v1/bury"): {"tasks": [], "reason": "no"},
    ("POST", "/v1/release"): {"tasks": []},
    ("POST", "/v1/extend"): {"tasks": []},
    ("POST", "/v1/settle"): {"done": []},
    ("PUT", "/v1/queues/orders"): {"settings": {}},
    ("PATCH", "/v1/queues/orders"): {"paused": False},
    ("POST", "/v1/queues/orders/purge"): {"dry_run": True},
    ("PUT", "/v1/queues/orders/groups/audit"): {"start": "latest"},
    ("POST", "/v1/queues/orders/groups/workers/seek"): {"start": "latest"},
    ("POST", "/v1/queues/orders/dead/redrive"): {"dry_run": True},
    ("POST", "/v1/queues/orders/dead/purge"): {"dry_run": True},
    ("POST", "/v1/queues/orders/dead/undo"): {"ids": []},
    ("POST", "/v1/stages/nightly"): {"blocks": [{"queue": "orders"}]},
    ("POST", "/v1/stages/nightly/publish"): {"ids": []},
    ("POST", "/v1/log/queue"): {"name": "orders"},
    ("PUT", "/v1/workers/w1/report"): {"worker": "w1", "processors": 1, "queues": {}},
    ("POST", "/v1/workers/instructions"): {"manager": "m1", "instructions": {}},
    ("PUT", "/v1/destinations/crm/report"): {
        "name": "crm",
        "process": "p1",
        "url": "",
        "queue": "orders",
        "group": "default",
        "breaker": "closed",
    },
    ("POST", "/v1/destinations/crm/pause"): {"reason": "maintenance"},
}
"""Every route that takes JSON, with a body of the right form."""
WITH_JSON: Final = pytest.mark.parametrize(("method", "path"), list(JSON_BODIES), ids="{}".format)
TOLERANT: Final = (("PUT", "/v1/workers/w1/report"), ("PUT", "/v1/destinations/crm/report"))
"""Workers may be newer than their server: what it doesn't know of their reports, it passes over."""
DEEP: Final = b"[" * 50_000 + b"]" * 50_000


@pytest.fixture(scope="module")
def forebay_server() -> Iterator[ForebayServer]:
    """Give a server with small limits that makes no queues by itself, and one queue."""
    limits = {"body_bytes_max": 1 << 20, "pending_bytes_max": 8 << 20}
    with ForebayServer(limits=limits, create_queues=False) as server:
        assert ask(server.port, "PUT", "/v1/queues/orders", {}).status == 201
        yield server


@pytest.fixture
def port(forebay_server: ForebayServer) -> Iterator[int]:
    """Give the port; what the test asked must have changed nothing, and the server must be well."""
    before = state(forebay_server.port)
    yield forebay_server.port
    assert state(forebay_server.port) == before
    assert ask(forebay_server.port, "GET", "/readyz").json()["ready"]
    log = forebay_server.log.read_text(encoding="utf-8")
    assert "Traceback" not in log, forebay_server.tail()


def state(port: int) -> Any:
    """All that a wrong request could have changed."""
    ledger = ask(port, "GET", "/v1/ledger").json()
    del ledger["at"]
    return ledger, ask(port, "GET", "/v1/queues/orders/groups").json(), ask(port, "GET", "/v1/running").json()


def test_every_route_with_a_body_is_in_the_table() -> None:
    from forebay.api.routes import ROUTES  # noqa: PLC0415 - only this test looks inside

    names = {
        "queue": "orders", "group": "workers", "stage": "nightly", "worker": "w1", "verb": "queue",
        "destination": "crm",
    }  # fmt: skip
    wanted = {(route.method, route.path.format(**names)) for route in ROUTES if route.body is not None}
    covered = {(method, path.replace("audit", "workers")) for method, path in JSON_BODIES}
    assert covered == wanted


# JSON


@WITH_JSON
def test_malformed_json_is_refused_with_its_position(port: int, method: str, path: str) -> None:
    good = json.dumps(JSON_BODIES[method, path]).encode()
    end = len(good) - 1
    wrong = {
        good[:-1]: f"too early (byte {end})",
        good[:-1] + b"x": f"byte {end}",
        good + b"}": "trailing characters (byte",
        good + b"\xff": f"byte {end + 1} is 0xff",
        b"\xef\xbb\xbf" + good: "byte 0",
    }
    for body, part in wrong.items():
        assert part in ask(port, method, path, body).problem(400)["detail"]


@WITH_JSON
def test_json_that_is_nested_too_deeply_is_refused(port: int, method: str, path: str) -> None:
    body = b'[{"payload": %s}]' % DEEP if path == MESSAGES else b'{"settings": %s}' % DEEP
    ask(port, method, path, body).problem(400)


@WITH_JSON
def test_the_wrong_type_is_refused_with_its_path(port: int, method: str, path: str) -> None:
    assert (
        "$" in ask(port, method, path, [{"payload": 1, "partition": 5}]).problem(400)["detail"]
        or path != MESSAGES
    )
    ask(port, method, path, b"17").problem(400)
    ask(port, method, path, b"null").problem(400)


@WITH_JSON
def test_an_unknown_field_is_refused(port: int, method: str, path: str) -> None:
    good = JSON_BODIES[method, path]
    bad = [{**good[0], "unheard_of": 1}] if isinstance(good, list) else {**good, "unheard_of": 1}
    answer = ask(port, method, path, bad)
    if (method, path) in TOLERANT:
        assert answer.status == 200, answer.body
    else:
        assert "unheard_of" in answer.problem(400)["detail"]


@WITH_JSON
def test_a_field_that_is_there_twice_is_refused(port: int, method: str, path: str) -> None:
    good = JSON_BODIES[method, path]
    fields = good[0] if isinstance(good, list) else good
    name, value = next(iter(fields.items()))
    for again in (name, f"\\u{ord(name[0]):04x}{name[1:]}"):
        body = json.dumps(fields)[:-1] + f', "{again}": {json.dumps(value)}}}'
        sent = f"[{body}]" if isinstance(good, list) else body
        assert "twice" in ask(port, method, path, sent.encode()).problem(400)["detail"]


@WITH_JSON
def test_another_content_type_is_refused(port: int, method: str, path: str) -> None:
    problem = ask(port, method, path, b"<a/>", {"Content-Type": "application/xml"}).problem(415)
    assert "application/json" in problem["hint"]


@WITH_JSON
def test_a_body_that_is_too_large_is_refused_and_the_client_reads_why(
    port: int, method: str, path: str
) -> None:
    ask(port, method, path, b" " * (3 << 20)).problem(413)


@WITH_JSON
@pytest.mark.parametrize(
    "packed", [b"\xc1", b"\x92\x01", b"\xa2\xff\xff", b"\x81\xa1a\x01", b"\x91" * 100_000 + b"\x01"]
)
def test_bad_messagepack_is_refused(port: int, method: str, path: str, packed: bytes) -> None:
    ask(port, method, path, packed, {"Content-Type": "application/msgpack"}).problem(400)


def test_the_nearest_field_is_suggested(port: int) -> None:
    problem = ask(port, "POST", MESSAGES, [{"payload": 1, "partiton": "a"}]).problem(400)
    assert "partition" in problem["hint"]
    assert "$[0]" in problem["detail"]


@pytest.mark.parametrize(
    "item",
    [
        b'{"payload": 1, "payload": 2}',
        b'{"payload": 1, "p\\u0061yload": 2}',
        b'{"payload": 1, "payload_b\\u0061se64": ""}',
        b'{"payload": 1, "headers": {"a": "1", "a": "2"}}',
        b'{"payload": 1, "headers": {"a": "1", "\\u0061": "2"}}',
    ],
)
@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
def test_a_message_with_a_key_twice_is_refused(port: int, item: bytes, media: str) -> None:
    body = b'[{"payload": 0}, %s]' % item if media == "application/json" else item
    ask(port, "POST", MESSAGES, body, {"Content-Type": media}).problem(400)


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({}, "no payload"),
        ({"payload": 1, "payload_base64": ""}, "both"),
        ({"payload_base64": "?"}, "base64"),
        ({"payload": 1, "start_time": 1, "delay_seconds": 1}, "both"),
        ({"payload": 1, "start_time": -1}, ">= 0"),
        ({"payload": 1, "start_time": 1 << 62}, "<="),
        ({"payload": 1, "delay_seconds": -0.5}, ">= 0"),
        ({"payload": 1, "transaction_id": ""}, "empty"),
        ({"payload": 1, "partition": "a\nb"}, "control"),
        ({"payload": 1, "headers": {"a": 1}}, "str"),
        ({"payload": 1, "partition": "x" * 300}, "long"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(port: int, item: Any, part: str) -> None:
    answer = ask(port, "POST", MESSAGES, [{"payload": 0}, item])
    detail = answer.problem(413 if part == "long" else 400)["detail"]
    assert part in detail
    assert "1" in detail


def test_too_many_or_too_large_messages_are_refused(port: int) -> None:
    ask(port, "POST", MESSAGES, b"[" + b",".join([b'{"payload":1}'] * 10_001) + b"]").problem(413)
    ask(port, "POST", MESSAGES, b"[]").problem(400)
    ask(port, "POST", "/v1/queues/orders/take", {"count": 10_001}).problem(400)
    ask(port, "POST", "/v1/take", {"queues": ["orders"] * 101}).problem(400)
    ask(port, "POST", "/v1/take", {"queues": []}).problem(400)


def test_an_idempotency_key_has_a_length(port: int) -> None:
    ask(port, "POST", MESSAGES, [{"payload": 1}], {"Idempotency-Key": "k" * 256}).problem(400)
    ask(port, "POST", MESSAGES, [{"payload": 1}], {"Idempotency-Key": ""}).problem(400)


def test_a_garbled_block_is_refused(port: int) -> None:
    body = bytearray(encode(Block.of([Message(b"x" * 100)])))
    body[40] ^= 1
    for garbled in (b"", b"FB", bytes(body), bytes(body[:-1])):
        ask(port, "POST", MESSAGES, garbled, {"Content-Type": "application/vnd.forebay.block"}).problem(400)
        form = {"blocks": [{"queue": "orders", "body_base64": base64.b64encode(garbled).decode()}]}
        ask(port, "POST", "/v1/stages/nightly", form).problem(400)
    ask(port, "POST", "/v1/stages/nightly", {"blocks": [{"queue": "orders"}]}).problem(400)
    ask(port, "POST", "/v1/stages/nightly/publish", {"ids": ["x"]}).problem(400)


# Encodings


def zstd_bomb(count: int) -> bytes:
    """A frame of `count` blocks that each repeat a byte 128 KiB times."""
    block = (128 << 10 << 3) | (1 << 1)
    last = block | 1
    blocks = (block.to_bytes(3, "little") + b" ") * (count - 1) + last.to_bytes(3, "little") + b" "
    return b"\x28\xb5\x2f\xfd\x00\x50" + blocks


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        pytest.param("gzip", gzip.compress(b" " * (200 << 20)), 413, id="gzip bomb"),
        pytest.param("zstd", zstandard.compress(b" " * (200 << 20)), 413, id="zstd bomb"),
        pytest.param("zstd", zstd_bomb(20_000), 413, id="zstd bomb of many blocks"),
        pytest.param("gzip", gzip.compress(b'[{"payload": 1}]')[:-3], 400, id="gzip cut off"),
        pytest.param("zstd", zstandard.compress(b'[{"payload": 1}]')[:-3], 400, id="zstd cut off"),
        pytest.param("gzip", gzip.compress(b'[{"payload": 1}]') + b"more", 400, id="gzip and more"),
        pytest.param("zstd", zstandard.compress(b'[{"payload": 1}]') + b"more", 400, id="zstd and more"),
        pytest.param("gzip", b"[]", 400, id="no gzip"),
        pytest.param("zstd", b"[]", 400, id="no zstd"),
        pytest.param("gzip", zlib.compress(b"[]"), 400, id="zlib"),
        pytest.param("zstd", b"\x28\xb5\x2f\xfd\x00\xff" + b"\x00" * 8, 400, id="zstd with a bad block"),
        pytest.param("br", b"[]", 415, id="brotli"),
        pytest.param("gzip, gzip", b"[]", 415, id="gzip twice"),
    ],
)
@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
def test_a_bad_encoding_is_refused(port: int, encoding: str, body: bytes, status: int, media: str) -> None:
    answer = ask(port, "POST", MESSAGES, body, {"Content-Encoding": encoding, "Content-Type": media})
    answer.problem(status)


def test_a_bomb_takes_no_memory(forebay_server: ForebayServer) -> None:
    headers = {"Content-Encoding": "zstd", "Content-Type": "application/x-ndjson"}
    before = forebay_server.rss_mb
    for _ in range(5):
        ask(forebay_server.port, "POST", MESSAGES, zstd_bomb(100_000), headers).problem(413)
    assert forebay_server.rss_mb - before < 64


# Names, ids, leases


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/queues/ordres/messages", [{"payload": 1}]),
        ("POST", "/v1/queues/ordres/take", {}),
        ("POST", "/v1/take", {"queues": ["ordres"]}),
        ("GET", "/v1/queues/ordres", None),
        ("GET", "/v1/queues/ordres/peek", None),
        ("GET", "/v1/queues/ordres/dead", None),
        ("GET", "/v1/queues/ordres/blocks", None),
        ("GET", "/v1/queues/ordres/groups", None),
        ("PATCH", "/v1/queues/ordres", {"paused": True}),
        ("POST", "/v1/queues/ordres/pause", None),
        ("POST", "/v1/queues/ordres/dead/redrive", {}),
        ("PUT", "/v1/queues/ordres/groups/a", {}),
    ],
)
def test_an_unknown_queue_is_told_from_the_nearest(port: int, method: str, path: str, body: Any) -> None:
    problem = ask(port, method, path, body).problem(404)
    assert "'orders'" in problem["hint"]
    assert problem["type"] == "urn:forebay:problem:unknown-queue"


def test_a_stream_to_an_unknown_queue_says_so(port: int) -> None:
    answer = ask(
        port,
        "POST",
        "/v1/queues/ordres/messages",
        b'{"payload": 1}',
        {"Content-Type": "application/x-ndjson"},
    )
    assert answer.problem(404)["accepted"] == 0


def test_an_unknown_group_is_not_found(port: int) -> None:
    ask(port, "POST", "/v1/queues/orders/take", {"group": "nobody"}).problem(404)
    ask(port, "GET", "/v1/queues/orders/dead?group=nobody").problem(404)


@pytest.mark.parametrize("name", ["a/b", "50%", "größe", "a b", "a?b#c", "..a", "ユニ"])
def test_a_name_is_percent_encoded_in_paths(forebay_server: ForebayServer, name: str) -> None:
    path = f"/v1/queues/{name_in_path(name)}"
    assert ask(forebay_server.port, "PUT", path).status == 201
    assert ask(forebay_server.port, "GET", path).json()["name"] == name
    assert ask(forebay_server.port, "DELETE", path).json() == {"deleted": True}


@pytest.mark.parametrize("part", ["%ff", "%00", "%0a", "x" * 256, "%20", "%2e%2e", ".", ""])
def test_a_bad_name_is_refused(port: int, part: str) -> None:
    answer = ask(port, "PUT", f"/v1/queues/{part}" if part else "/v1/queues//groups/a", {})
    assert answer.status in (400, 404, 413)
    answer.problem(answer.status)


@pytest.mark.parametrize("id", ["0", "-1", "x", "9223372036854775808", "1" * 30, "1.5", "%00", "\u0661"])
def test_a_bad_message_id_is_refused(port: int, id: str) -> None:
    ask(port, "GET", f"/v1/messages/{name_in_path(id) if id != '%00' else id}").problem(400)
    ask(port, "POST", "/v1/queues/orders/dead/redrive", {"ids": [id]}).problem(400)


@pytest.mark.parametrize("id", [0, -1, 1 << 63, 10**40, 1.5, True, None, []])
def test_a_bad_number_as_message_id_is_refused(port: int, id: Any) -> None:
    ask(port, "POST", "/v1/queues/orders/dead/redrive", {"ids": [id]}).problem(400)
    ticket = {"id": id, "lease": lease_text(lease())}
    ask(port, "POST", "/v1/done", {"tasks": [ticket]}).problem(400)


def lease(**changes: Any) -> Lease:
    """A lease that was never handed out, but could have been."""
    good = Lease(
        group=1, epoch="m1", number=1, claim=1, first=(1 << 45) + 1, count=1, attempts=0, start_time=1
    )
    return msgspec.structs.replace(good, **changes)


@pytest.mark.parametrize(
    "forged",
    [
        "", "?", "AA", "x" * 2_000, "ü", "=" * 8,
        lease(count=1 << 40), lease(count=0), lease(count=-1), lease(count=100_001),
        lease(group=-1), lease(group=1 << 63), lease(claim=1 << 64 - 1), lease(claim=-5), lease(first=-1),
        lease(first=0), lease(first=1), lease(first=(1 << 63) - 1), lease(attempts=-1), lease(start_time=-1),
        lease(epoch="e" * 256), lease(epoch="\0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["done", "retry", "bury", "release", "extend", "settle"])
def test_a_forged_lease_is_refused(port: int, forged: str | Lease, path: str) -> None:
    text = lease_text(forged) if isinstance(forged, Lease) else forged
    tasks = [{"id": str((1 << 45) + 1), "lease": text}]
    field = "release" if path == "settle" else "tasks"
    body = {field: tasks, **({"reason": "no"} if path == "bury" else {})}
    assert "lease" in ask(port, "POST", f"/v1/{path}", body).problem(400)["detail"]
    if isinstance(forged, Lease):
        packed = msgspec.msgpack.encode({**body, field: [{"id": (1 << 45) + 1, "lease": forged}]})
        ask(port, "POST", f"/v1/{path}", packed, {"Content-Type": "application/msgpack"}).problem(400)


@pytest.mark.parametrize("verb", ["done", "retry", "bury", "release", "extend"])
def test_a_lease_is_only_for_its_own_messages(port: int, verb: str) -> None:
    tasks = [{"id": str((1 << 45) + 2), "lease": lease_text(lease())}]
    body = {"tasks": tasks, **({"reason": "bad"} if verb == "bury" else {})}
    assert "not among those of its lease" in ask(port, "POST", f"/v1/{verb}", body).problem(400)["detail"]


def test_a_lease_of_a_group_that_is_not_there_is_not_found(port: int) -> None:
    tasks = [{"id": str((1 << 45) + 1), "lease": lease_text(lease(group=77))}]
    ask(port, "POST", "/v1/done", {"tasks": tasks}).problem(404)


def test_a_lease_that_was_never_handed_out_is_lost(port: int) -> None:
    tasks = [{"id": str((1 << 45) + 1), "lease": lease_text(lease(claim=999))}]
    problem = ask(port, "POST", "/v1/done", {"tasks": tasks}).problem(409)
    assert problem["lost"] == [tasks[0]["id"]]


def test_what_a_database_cannot_keep_is_refused(port: int) -> None:
    ask(port, "POST", "/v1/queues/orders/take", {"worker": "a\0b"}).problem(400)
    ask(port, "POST", "/v1/bury", {"tasks": [], "reason": "a\0b"}).problem(400)


# Methods and queries


def test_the_wrong_method_is_told_the_right_ones(port: int) -> None:
    answer = ask(port, "DELETE", "/v1/queues")
    answer.problem(405)
    assert answer.headers["allow"] == "GET, HEAD"
    answer = ask(port, "OPTIONS", "/v1/queues/orders")
    answer.problem(405)
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"


def test_nothing_is_served_at_other_paths(port: int) -> None:
    for path in (
        "/v2/queues",
        "/v1",
        "/v1/queues/orders/nothing",
        "/v1/queues/orders/messages/1",
    ):
        assert "openapi" in ask(port, "GET", path).problem(404)["hint"]


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("count=1&count=2", "twice"),
        ("cuont=1", "cuont"),
        ("count=x", "int"),
        ("count=0", ">= 1"),
        ("count=1001", "<= 1000"),
        ("count", "query"),
        ("&".join(f"a{i}=1" for i in range(200)), "query"),
        ("count=" + "9" * 5_000, "int"),
    ],
)
def test_a_bad_query_is_refused(port: int, query: str, part: str) -> None:
    assert part in ask(port, "GET", f"/v1/queues/orders/peek?{query}").problem(400)["detail"]


def test_a_query_where_there_is_none_is_refused(port: int) -> None:
    ask(port, "POST", f"{MESSAGES}?partition=a", [{"payload": 1}]).problem(400)


def test_a_page_after_the_last_id_there_can_be_is_empty(port: int) -> None:
    answer = ask(port, "GET", f"/v1/queues/orders/dead?after={'9' * 19}")
    assert answer.json() == {"letters": []}


# What looks bad and isn't


def pushed(answer: Answer) -> list[str]:
    assert answer.status == 201, answer.body
    return [result["status"] for result in answer.json()["results"]]


@pytest.fixture(scope="module")
def open_port() -> Iterator[int]:
    """Give the port of a server that may be changed."""
    with ForebayServer() as server:
        yield server.port


def test_keys_of_payloads_are_nobodys_business(open_port: int) -> None:
    payload = b'{"payload": 1, "payload": 2, "a": {"b": 1, "b": [{"x": 1, "x": 1}]}, "n": %s}' % (
        b"1" * 5_000
    )
    assert pushed(ask(open_port, "POST", "/v1/queues/kept/messages", b'[{"payload": %s}]' % payload)) == [
        "accepted"
    ]
    (task,) = ask(open_port, "POST", "/v1/queues/kept/take", {}).body.split(b'"tasks":')[1:]
    assert payload in task


def test_members_and_frames_one_after_the_other_are_one_body(open_port: int) -> None:
    first, second = b'[{"payload": 1},', b'{"payload": 2}]'
    for name, pack in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
        body = pack(first) + pack(second)
        answer = ask(open_port, "POST", MESSAGES, body, {"Content-Encoding": name})
        assert pushed(answer) == ["accepted", "accepted"]


def test_a_repeated_push_is_the_same_push(open_port: int) -> None:
    first = ask(open_port, "POST", MESSAGES, [{"payload": 1}], {"Idempotency-Key": "once"}).json()
    again = ask(open_port, "POST", MESSAGES, [{"payload": 1}], {"Idempotency-Key": "once"}).json()
    assert again == {**first, "repeated": True}


def test_a_stream_says_how_far_it_came(open_port: int) -> None:
    lines = [b'{"payload": %d}' % i for i in range(1_500)]
    body = b"\n".join([*lines, b'{"payload": oops}', *lines])
    answer = ask(
        open_port, "POST", "/v1/queues/lines/messages", body, {"Content-Type": "application/x-ndjson"}
    )
    problem = answer.problem(400)
    assert problem["detail"].startswith("line 1501: ")
    assert problem["accepted"] == 1_000


def test_if_match_decides_whether_settings_change(open_port: int) -> None:
    path = "/v1/queues/matched"
    etag = ask(open_port, "PUT", path, {}).headers["etag"]
    assert ask(open_port, "GET", path, headers={"If-None-Match": f'"x", W/{etag}'}).status == 304
    assert ask(open_port, "GET", path, headers={"If-None-Match": '"x"'}).status == 200
    change = {"visibility_seconds": 5}
    assert ask(open_port, "PATCH", path, change, {"If-Match": f'"x", {etag}'}).status == 200
    ask(open_port, "PATCH", path, {"visibility_seconds": 6}, {"If-Match": etag}).problem(412)
    assert ask(open_port, "GET", path).json()["settings"]["visibility_seconds"] == 5
    assert ask(open_port, "PATCH", path, change, {"If-Match": "*"}).status == 200


def test_a_task_is_done_once(open_port: int) -> None:
    ask(open_port, "POST", "/v1/queues/work/messages", [{"payload": {"n": 1}}])
    (task,) = ask(open_port, "POST", "/v1/queues/work/take", {"wait_seconds": 5}).json()["tasks"]
    assert task["payload"] == {"n": 1}
    ticket = {"tasks": [{"id": task["id"], "lease": task["lease"]}]}
    assert ask(open_port, "POST", "/v1/done", ticket).json() == {"settled": 1, "durable": "log"}
    assert ask(open_port, "POST", "/v1/done", ticket).problem(409)["lost"] == [task["id"]]
