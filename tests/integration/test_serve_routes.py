"""What every route does when all is well, asked in JSON and in MessagePack."""

import base64
import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final
from unittest.mock import ANY

import msgspec
import pytest

from forebay.api.routes import ROUTES
from forebay.api.routing import Router
from forebay.model import Block, Message, SystemClock, encode
from tests.integration.http_wire import Answer, Wire
from tests.servers import ForebayServer

MSGPACK: Final = "application/msgpack"
NUMBERS: Final = count(1)
ASKED: Final[set[tuple[str, str]]] = set()
"""The method and route of what was asked in this module, to see that nothing is left out."""


class Speaker:
    """Talks to a server in one of the encodings, about a queue of its own."""

    def __init__(self, port: int, encoding: str) -> None:
        self.wire = Wire(port)
        self.packed = encoding == "msgpack"
        self.queue = f"orders{next(NUMBERS)}"
        self.path = f"/v1/queues/{self.queue}"

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """The value of the answer, which must have a status."""
        answer = self.answer(method, path, body)
        assert answer.status == status, answer.body
        if not self.packed:
            assert answer.headers["content-type"] == "application/json"
            return answer.json()
        assert answer.headers["content-type"] == MSGPACK
        return msgspec.msgpack.decode(answer.body)

    def answer(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer as it came."""
        ASKED.add((method, path))
        if not self.packed:
            return self.wire.ask(method, path, body)
        data = None if body is None else msgspec.msgpack.encode(body)
        return self.wire.ask(method, path, data, {"Content-Type": MSGPACK, "Accept": MSGPACK})

    def post(self, path: str, body: Any = None) -> Any:
        """Likewise, to change something."""
        return self.ask("POST", path, body)

    def push(self, *payloads: Any) -> list[int]:
        """Push payloads that are JSON; the ids."""
        if not self.packed:
            pushed = self.ask("POST", f"{self.path}/messages", [{"payload": p} for p in payloads], status=201)
            assert pushed["durable"] == "log"
            return [int(result["id"]) for result in pushed["results"]]
        messages = [Message(json.dumps(payload).encode()) for payload in payloads]
        pushed = self.ask("POST", f"{self.path}/messages", messages, status=201)
        assert (pushed["durable"], pushed["appended"]["count"]) == ("log", len(payloads))
        return list(range(pushed["appended"]["first"], pushed["appended"]["first"] + len(payloads)))

    def take(self, number: int = 1, wait_seconds: float = 10) -> list[dict[str, Any]]:
        """Take tasks: id, lease, payload and attempts of each, by id."""
        body = {"count": number, "wait_seconds": wait_seconds}
        tasks = self.listed(self.post(f"{self.path}/take", body), "tasks")
        return sorted(map(self.told, tasks), key=lambda task: int(task["id"]))

    def told(self, task: dict[str, Any]) -> dict[str, Any]:
        """What both encodings say of a task."""
        payload = json.loads(task["data"]) if self.packed else task["payload"]
        return {
            "id": task["id"],
            "lease": task.get("lease"),
            "payload": payload,
            "attempts": task["attempts"],
        }

    def listed(self, value: Any, name: str) -> list[Any]:
        """What is listed: JSON has it under a name."""
        return list(value if self.packed else value[name])

    def state(self, id: int) -> str:
        """Where a message is for the workers."""
        found = self.ask("GET", f"/v1/messages/{id}")
        assert (int(found["id"]), found["queue"]) == (id, self.queue)
        (group,) = [group for group in found["groups"] if group["group"] == "workers"]
        return str(group["state"])


def settled(count: int) -> dict[str, object]:
    """The answer to so many outcomes."""
    return {"settled": count, "durable": "log"}


def ticket(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What settles a task."""
    return {"id": task["id"], "lease": task["lease"], **more}


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server for all tests here."""
    with ForebayServer() as server:
        yield server


@pytest.fixture(params=["json", "msgpack"])
def speaker(server: ForebayServer, request: pytest.FixtureRequest) -> Iterator[Speaker]:
    """Give a speaker of each encoding, whose queue is there."""
    speaker = Speaker(server.port, request.param)
    with speaker.wire:
        speaker.ask("PUT", speaker.path, {"settings": {"visibility_seconds": 300}}, status=201)
        yield speaker


def test_tasks_are_taken_and_done(speaker: Speaker) -> None:
    ids = speaker.push({"n": 1}, [2], None)
    tasks = speaker.take(5)
    assert [(int(task["id"]), task["payload"]) for task in tasks] == list(
        zip(ids, ({"n": 1}, [2], None), strict=True)
    )
    assert speaker.post("/v1/done", {"tasks": [ticket(task) for task in tasks]}) == {
        "settled": 3,
        "durable": "log",
    }
    assert {speaker.state(id) for id in ids} == {"done"}
    lost = speaker.answer("POST", "/v1/done", {"tasks": [ticket(tasks[0])]}).problem(409)
    assert lost["lost"] == [str(ids[0])]


def test_a_take_of_several_queues_says_which(speaker: Speaker) -> None:
    speaker.push(1)
    body = {"queues": [f"{speaker.queue}none", speaker.queue], "wait_seconds": 10}
    speaker.ask("PUT", f"{speaker.path}none", {}, status=201)
    (task,) = speaker.listed(speaker.post("/v1/take", body), "tasks")
    if not speaker.packed:
        assert task["queue"] == speaker.queue
    assert speaker.told(task)["payload"] == 1


def test_a_retry_comes_back_at_once_and_one_with_a_delay_later(speaker: Speaker) -> None:
    ids = speaker.push("now", "later", "at a time")
    now, later, timed = speaker.take(3)
    soon = SystemClock().now() + 3_600_000_000
    retries = [ticket(now), ticket(later, delay_seconds=3600), ticket(timed, start_time=soon)]
    assert speaker.post("/v1/retry", {"tasks": retries}) == settled(3)
    (again,) = speaker.take(3)
    assert (int(again["id"]), again["attempts"]) == (ids[0], 1)
    assert [speaker.state(id) for id in ids] == ["leased", "delayed", "delayed"]
    assert speaker.post("/v1/retry", {"tasks": [ticket(again)], "delay_seconds": 3600}) == {
        "settled": 1,
        "durable": "log",
    }
    assert speaker.state(ids[0]) == "delayed"


def test_a_release_counts_no_attempt(speaker: Speaker) -> None:
    speaker.push(1)
    assert speaker.post("/v1/release", {"tasks": [ticket(*speaker.take())]}) == {
        "settled": 1,
        "durable": "log",
    }
    (again,) = speaker.take()
    assert again["attempts"] == 0


def test_an_extension_moves_the_deadline(speaker: Speaker) -> None:
    (id,) = speaker.push(1)
    (task,) = speaker.take()
    assert speaker.post("/v1/extend", {"tasks": [ticket(task)], "seconds": 7200}) == {"settled": 1}
    (group,) = speaker.ask("GET", f"/v1/messages/{id}")["groups"]
    assert group["deadline"] - group["since"] > 7000 * 1_000_000
    running = speaker.listed(speaker.ask("GET", "/v1/running?limit=10000"), "running")
    assert [int(piece["first"]) for piece in running if piece["queue"] == speaker.queue] == [id]


def test_an_extension_by_no_time_is_refused(speaker: Speaker) -> None:
    speaker.push(1)
    (task,) = speaker.take()
    body = {"tasks": [ticket(task)], "seconds": 0}
    assert "`float` > 0" in speaker.answer("POST", "/v1/extend", body).refusal(400)
    assert speaker.post("/v1/extend", {"tasks": [ticket(task)]}) == {"settled": 1}


def test_several_outcomes_are_one_write(speaker: Speaker) -> None:
    ids = speaker.push(*range(4))
    done, retried, buried, released = map(ticket, speaker.take(4))
    body = {"done": [done], "retry": [{**retried, "delay_seconds": 3600}], "bury": [buried], "reason": "bad"}
    assert speaker.post("/v1/settle", {**body, "release": [released]}) == settled(4)
    assert [speaker.state(id) for id in ids[:3]] == ["done", "delayed", "dead"]
    (again,) = speaker.take(4)
    assert (int(again["id"]), again["attempts"]) == (ids[3], 0)


def test_dead_letters_are_listed_redriven_purged_and_brought_back(speaker: Speaker) -> None:
    ids = speaker.push("a", "b", "c")
    buried = [ticket(task) for task in speaker.take(3)]
    assert speaker.post("/v1/bury", {"tasks": buried, "reason": "no address"}) == {
        "settled": 3,
        "durable": "log",
    }
    letters = speaker.listed(speaker.ask("GET", f"{speaker.path}/dead?limit=2"), "letters")
    name = "message_id" if speaker.packed else "id"
    assert [(int(letter[name]), letter["reason"]) for letter in letters] == [
        (id, "no address") for id in ids[:2]
    ]

    def change(verb: str, **body: Any) -> list[int]:
        return [int(id) for id in speaker.post(f"{speaker.path}/dead/{verb}", body)["ids"]]

    assert change("redrive", reason="address", dry_run=True) == ids
    assert change("redrive", reason="nonsense") == []
    assert change("redrive", ids=[ids[0]]) == [ids[0]]
    assert change("purge", ids=[str(ids[1])]) == [ids[1]]
    assert change("undo", ids=[ids[1]]) == [ids[1]]
    assert [speaker.state(id) for id in ids[1:]] == ["dead", "dead"]
    assert change("redrive") == ids[1:]
    again: list[int] = []
    while len(again) < 3:
        again += [int(task["id"]) for task in speaker.take(3)]
    assert sorted(again) == ids


def test_peeking_takes_nothing(speaker: Speaker) -> None:
    ids = speaker.push("a", "b")
    while len(found := speaker.listed(speaker.ask("GET", f"{speaker.path}/peek?count=5"), "messages")) < 2:
        pass
    assert [(int(m["id"]), speaker.told(m)["payload"]) for m in found] == list(zip(ids, "ab", strict=True))
    assert len(speaker.take(5)) == 2


def test_queues_are_made_changed_paused_listed_and_deleted(speaker: Speaker) -> None:
    shown = speaker.answer("GET", speaker.path)
    etag = shown.headers["etag"]
    assert speaker.wire.ask("GET", speaker.path, headers={"If-None-Match": etag}).status == 304
    changed = speaker.ask("PATCH", speaker.path, {"retries_max": 3})
    assert (changed["settings"]["retries_max"], changed["settings"]["visibility_seconds"]) == (3, 300)
    speaker.wire.ask("PATCH", speaker.path, {"retries_max": 4}, {"If-Match": etag}).problem(412)
    labels = {"team": "blue", "a": {"z": [1], "b": None}}
    labelled = speaker.answer("PATCH", speaker.path, {"labels": labels})
    shown = speaker.answer("GET", speaker.path)
    assert shown.headers["etag"] == labelled.headers["etag"]
    assert speaker.ask("GET", speaker.path)["settings"]["labels"] == labels
    speaker.push(1)
    assert speaker.post(f"{speaker.path}/pause")["settings"]["paused"] is True
    assert speaker.take(wait_seconds=0) == []
    assert speaker.post(f"{speaker.path}/resume")["settings"]["paused"] is False
    assert len(speaker.take()) == 1
    page = speaker.ask("GET", f"/v1/queues?after={changed['number'] - 1}&limit=1")
    assert [queue["name"] for queue in page["queues"]] == [speaker.queue]
    assert speaker.ask("DELETE", speaker.path) == {"deleted": True}
    assert speaker.ask("DELETE", speaker.path) == {"deleted": False}


def test_a_purge_is_tried_out_first(speaker: Speaker) -> None:
    ids = speaker.push(1, 2)
    dry = speaker.post(f"{speaker.path}/purge", {"dry_run": True})
    assert (dry["skipped"], dry["dry_run"]) == ({"workers": 2}, True)
    assert len(speaker.take(5)) == 2
    assert speaker.post(f"{speaker.path}/purge", {"group": "workers"})["skipped"] == {"workers": 2}
    assert {speaker.state(id) for id in ids} == {"skipped"}


def test_groups_begin_and_go_on_where_they_are_told(speaker: Speaker) -> None:
    speaker.push("a", "b")
    groups = f"{speaker.path}/groups"
    assert speaker.ask("PUT", f"{groups}/audit", {"start": "latest"})["start"] == 3
    moment = SystemClock().now()
    speaker.push("c")
    assert [group["name"] for group in speaker.ask("GET", groups)] == ["workers", "audit"]

    def again(**place: Any) -> list[Any]:
        speaker.post(f"{groups}/audit/seek", place)
        body = {"group": "audit", "count": 10}
        found: list[Any] = []
        tasks = speaker.listed(speaker.post(f"{speaker.path}/take", {**body, "wait_seconds": 1}), "tasks")
        while tasks:
            found += [speaker.told(task)["payload"] for task in tasks]
            tasks = speaker.listed(speaker.post(f"{speaker.path}/take", body), "tasks")
        return sorted(found)

    assert again(start="earliest") == ["a", "b", "c"]
    assert again(sequence=2) == ["b", "c"]
    assert again(start=moment) == ["c"]
    assert again(start="latest") == []
    assert speaker.ask("DELETE", f"{groups}/audit") == {"deleted": True}


def test_blocks_are_staged_published_and_read(speaker: Speaker) -> None:
    blocks = [Block.of([Message(b"%d" % n)] * 2, created_at=1) for n in range(2)]
    bodies = [encode(block) for block in blocks]
    if speaker.packed:
        staged = [{"queue": speaker.queue, "body": body} for body in bodies]
    else:
        staged = [{"queue": speaker.queue, "body_base64": base64.b64encode(b).decode()} for b in bodies]
    stage = f"/v1/stages/{speaker.queue}"
    ids = speaker.post(stage, {"blocks": staged})["ids"]
    assert speaker.listed(speaker.ask("GET", f"{speaker.path}/blocks"), "blocks") == []
    published = speaker.post(f"{stage}/publish", {"ids": ids[::-1]})["appended"]
    first = int(published[0]["first"])
    assert [(int(a["first"]), a["count"]) for a in published] == [(first, 2), (first + 2, 2)]
    assert [int(a["first"]) for a in speaker.post(f"{stage}/publish", {"ids": ids[::-1]})["appended"]] == [
        first, first + 2,
    ]  # fmt: skip
    page = speaker.ask("GET", f"{speaker.path}/blocks?first=3")
    (block,) = speaker.listed(page, "blocks")
    body = block["body"] if speaker.packed else base64.b64decode(block["body_base64"])
    assert (int(block["first"]), body) == (first + 2, bodies[0])


def test_the_log_does_its_verbs_and_the_books_say_so(speaker: Speaker) -> None:
    """Its groups show in the ledger like any other; what is wrong is a problem."""
    queue = speaker.post("/v1/log/create_queue", {"name": speaker.queue})
    group = speaker.post("/v1/log/create_group", {"queue": queue, "name": "spark"})
    speaker.push(1, 2, 3)
    assert speaker.post("/v1/log/advance", {"group": group, "to": 3}) == 2
    ledger = speaker.ask("GET", "/v1/ledger")
    (books,) = [found for found in ledger["queues"] if found["queue"]["name"] == speaker.queue]
    told = {found["group"]["name"]: (found["done"], found["ready"]) for found in books["groups"]}
    assert told["spark"] == (2, 1)
    for verb, arguments, status in (
        ("advance", {"group": group, "to": 9}, 400),
        ("advance", {"group": group}, 400),
        ("queue", {"name": "nowhere"}, 404),
        ("hang_up", {}, 404),
    ):
        answer = speaker.answer("POST", f"/v1/log/{verb}", arguments)
        assert (answer.status, bool(answer.problem(status)["hint"])) == (status, True)


def test_the_books_the_stats_and_the_flows_say_the_same(speaker: Speaker) -> None:
    speaker.push(1, 2, 3)
    speaker.post("/v1/done", {"tasks": [ticket(*speaker.take())]})
    (books,) = [
        books
        for books in speaker.ask("GET", "/v1/ledger")["queues"]
        if books["queue"]["name"] == speaker.queue
    ]
    (group,) = books["groups"]
    assert (group["done"], books["next"]) == (1, 4)
    stats = speaker.ask("GET", "/v1/stats")["queue_stats"]
    assert str(books["queue"]["number"]) in map(str, stats)
    flows = speaker.ask("GET", "/v1/flows")
    assert speaker.queue in json.dumps(flows, default=str)
    assert speaker.listed(speaker.ask("GET", "/v1/inbox/rejected?after=0&limit=10"), "rejected") == []
    assert speaker.answer("GET", "/v1/inbox/rejected?after=-1").status == 400


def test_workers_report_and_managers_tell_them_what_to_do(speaker: Speaker) -> None:
    worker, path = f"w/{speaker.queue}", f"/v1/workers/w%2F{speaker.queue}/report"
    queue = {"processed": 1, "errors": 0, "retried": 0, "seconds_per_task": 0.5, "in_progress": 2}
    queue |= {"processors": 1, "processors_max": 4}
    report = {"worker": worker, "processors": 4, "queues": {speaker.queue: queue}}
    assert speaker.ask("PUT", path, report)["instructions"] is None
    crew = speaker.ask("GET", "/v1/workers")
    assert [seen for seen in crew["workers"] if seen["worker"] == worker] == [{**report, "group": "workers"}]
    told = {worker: {speaker.queue: 3, "other": 1}}
    orders = {"manager": "m", "version": crew["lead"]["version"], "instructions": told}
    lead = speaker.post("/v1/workers/instructions", orders)
    assert lead == {"manager": "m", "version": crew["lead"]["version"] + 1}
    assert speaker.answer("POST", "/v1/workers/instructions", orders).status == 409
    assert speaker.ask("PUT", path, report)["instructions"] == {
        "manager": "m",
        "processors": {speaker.queue: 3},
    }
    assert speaker.answer("PUT", "/v1/workers/another/report", report).status == 400
    assert speaker.answer("PUT", path, {**report, "processors": -1}).status == 400


def test_destinations_are_reported_paused_and_resumed(speaker: Speaker) -> None:
    name = f"d-{speaker.queue}"
    report: dict[str, Any] = {
        "name": name,
        "process": "p",
        "url": "http://x/",
        "queue": speaker.queue,
        "group": "workers",
    }
    report |= {"breaker": "closed", "delivered": 7}
    path = f"/v1/destinations/{name}"
    assert speaker.ask("PUT", f"{path}/report", report)["pause"] is None
    assert speaker.post(f"{path}/pause", {"reason": "why"})["pause"]["reason"] == "why"
    assert speaker.ask("PUT", f"{path}/report", report)["pause"]["reason"] == "why"
    (found,) = [one for one in speaker.ask("GET", "/v1/destinations")["destinations"] if one["name"] == name]
    assert [one["delivered"] for one in found["reports"]] == [7]
    assert speaker.post(f"{path}/resume")["pause"] is None
    disabled = report | {"disabled_because": "it failed"}
    assert speaker.ask("PUT", f"{path}/report", disabled)["pause"]["by_itself"] is True
    assert speaker.answer("PUT", "/v1/destinations/another/report", report).status == 400
    assert speaker.answer("PUT", f"{path}/report", {**report, "delivered": -1}).status == 400
    assert speaker.answer("POST", "/v1/destinations/a%2Fb/pause", {}).status == 400
    assert speaker.answer("POST", f"{path}/test").status == 400


def test_the_server_says_how_it_is(speaker: Speaker) -> None:
    assert speaker.ask("GET", "/healthz") == {"alive": True}
    assert speaker.ask("GET", "/readyz")["ready"] is True
    assert speaker.ask("GET", "/health")["status"] == "healthy"
    assert speaker.ask("GET", "/v1/spool")["healthy"] is True
    assert speaker.ask("GET", "/v1/config")["server.create_queues"] is True
    for path in (
        "/metrics",
        "/openapi.json",
        "/docs",
        "/",
        "/queue-metrics",
        "/metrics/queues",
        "/page/page.css",
    ):
        answer = speaker.answer("GET", path)
        assert (answer.status, bool(answer.body)) == (200, True)


def test_what_the_page_lives_on_is_there(speaker: Speaker) -> None:
    speaker.push(1)
    assert speaker.ask("GET", "/v1/overview")["problems"] in ([], [{"part": "queues", "reason": ANY}])
    assert isinstance(speaker.ask("GET", "/v1/overview/plots")["plots"], list)
    prefix = "/api/v2/metrics/queues"
    assert isinstance(speaker.ask("GET", f"{prefix}/detailed")["warmQueues"], list)
    assert isinstance(speaker.ask("GET", f"{prefix}/action-plugins"), dict)
    assert isinstance(speaker.ask("GET", f"{prefix}/running?limit=5")["tasks"], list)


def test_no_route_is_left_out() -> None:
    if ("GET", "/docs") not in ASKED:
        pytest.skip("it looks at what the tests above have asked")
    router = Router(ROUTES)
    asked = {router.find(method, path.partition("?")[0].encode())[0].run for method, path in ASKED}
    ours = [route for route in ROUTES if not (route.foreign or "text/event-stream" in route.answer_media)]
    assert [f"{route.method} {route.path}" for route in ours if route.run not in asked] == []
