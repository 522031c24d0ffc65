"""Flows that end at a destination: read with the settings of the section `deliver`, and all that is wrong."""

import json
from pathlib import Path

import pytest

from forebay.app.cli import main
from forebay.app.flow_file import read_flow_file
from forebay.spark.flows.spec import InvalidFlows
from forebay.spark.flows.values import DestinationSink, PipelineSpec

WHOLE = """\
flows:
  - name: tell
    type: DATA_SINK
    source: {queue: orders}
    sink:
      queue: calls
      group: hooks
      retries_max: 20
      retry_seconds: 10s
      destination:
        url: https://me:hunter2@hooks.example/in?token=hunter3
        body: json
        batch_bytes_max: 256Ki
        signing_secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]
        headers: {X-Team: blue}
"""
TYPES = ["REST_DATA_SOURCE", "TIMED_DATA_SOURCE", "ON_ERROR_DATA_SOURCE", "TRANSFORM", "DATA_SINK"]
SOURCES = {"TIMED_DATA_SOURCE": "{function: 'm:f'}", "ON_ERROR_DATA_SOURCE": "{dead: orders}"}


def sink(text: str, *, kind: str = "DATA_SINK", name: str = "tell") -> str:
    source = SOURCES.get(kind, "{queue: orders}")
    return f"  - {{name: {name}, type: {kind}, source: {source}, every: 1s, sink: {text}}}\n"


def read(folder: Path, text: str) -> PipelineSpec:
    file = folder / "flows.yaml"
    file.write_text(text)
    return read_flow_file(file)


def faults(folder: Path, text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(InvalidFlows) as caught:
        read(folder, text)
    assert all(fault.hint for fault in caught.value.faults), "every fault says what would be right"
    return [(fault.line, fault.column, fault.message) for fault in caught.value.faults]


def test_a_destination_is_read_like_an_entry_of_the_section_deliver(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found.flows[0].sink == DestinationSink(
        queue="calls", group="hooks", url="https://hooks.example/in", host="hooks.example"
    )
    delivery = found.deliveries["tell"]
    assert (delivery.queue, delivery.group, delivery.retries_max) == ("calls", "hooks", 20)
    to = delivery.destination
    assert (delivery.retry_seconds, to.body, to.batch_bytes_max) == (10.0, "json", 256 << 10)
    assert (len(to.signing_secrets), to.headers, to.allow_private) == (1, {"X-Team": "blue"}, False)


@pytest.mark.parametrize("kind", TYPES)
def test_a_url_is_enough_for_a_flow_of_any_type(tmp_path: Path, kind: str) -> None:
    found = read(tmp_path, "flows:\n" + sink("{destination: 'https://hooks.example/in'}", kind=kind))
    (flow,) = found.flows
    assert flow.sink == DestinationSink(
        queue="tell-out", group="workers", url="https://hooks.example/in", host="hooks.example"
    )
    assert "tell-out" in flow.queues
    assert found.deliveries["tell"].destination.url == "https://hooks.example/in"


def test_no_list_of_flows_has_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, WHOLE)
    assert main(["pipeline", "list", str(tmp_path / "flows.yaml")]) == 0
    assert "calls → https://hooks.example/in" in capsys.readouterr().out
    assert main(["pipeline", "list", str(tmp_path / "flows.yaml"), "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["flows"][0]["sink"]["url"] == "https://hooks.example/in"
    assert "hunter" not in printed
    assert "whsec" not in printed


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("{destination: }", " }}", "sink: destination.url: it is missing"),
        ("{destination: {body: json}}", "{body", "sink: destination.url: it is missing"),
        ("{destination: [a]}", "[a]", "sink: destination: it is a list, not a mapping"),
        (
            "{destination: 'ftp://host/'}",
            "'ftp",
            "sink: destination.url: ftp://host/ is not the address of a destination",
        ),
        (
            "{destination: {url: 'http://a', timeout_seconds: soon}}",
            "soon",
            "sink: destination.timeout_seconds: 'soon' is not a duration",
        ),
        ("{destination: 'http://a', retries: 3}", "3}", "sink: retries: there is no such setting"),
        ("{destination: 'http://a', parquet: p}", "p}", "sink: parquet: there is no such setting"),
        (f"{{destination: 'http://a', queue: {'q' * 300}}}", "qqq", "sink: queue: "),
        ("{destination: 'http://a', queue: orders}", "{dest", "it writes to the queue that it reads"),
        ("{http: 'http://a'}", "http:", "sink: unknown key 'http'"),
    ],
    ids=["none", "no-url", "list", "scheme", "duration", "unknown", "parquet", "name", "same-queue", "http"],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, at: str, said: str) -> None:
    line = sink(text)
    found = faults(tmp_path, "flows:\n" + line)
    assert [
        each
        for each in found
        if each[:2] == (2, line.index(at) + 1) and each[2].startswith(f"flow 'tell': {said}")
    ], found


def test_no_fault_has_a_secret(tmp_path: Path) -> None:
    text = "{destination: {url: 'ftp://me:hunter2@a', auth: {bearer: hunter3}, signing_secrets: [hunter4]}}"
    (fault, *_) = faults(tmp_path, "flows:\n" + sink(text))
    assert "hunter" not in fault[2]


def test_nobody_else_takes_what_is_delivered(tmp_path: Path) -> None:
    first = sink("{destination: 'http://a', queue: calls}")
    same = sink("{destination: 'http://b', queue: calls}", name="other", kind="TIMED_DATA_SOURCE")
    assert [said for *_, said in faults(tmp_path, "flows:\n" + first + same)] == [
        "flow 'other': flow 'tell' reads queue 'calls' as group 'workers', too"
    ]
    own = sink("{destination: 'http://b', queue: calls, group: b}", name="other", kind="TIMED_DATA_SOURCE")
    assert list(read(tmp_path, "flows:\n" + first + own).deliveries) == ["tell", "other"]


def test_a_check_finds_addresses_that_are_refused_and_files_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    entries = (
        sink("{destination: 'http://127.0.0.1:8000/'}", name="a", kind="TIMED_DATA_SOURCE"),
        sink("{destination: 'http://localhost/'}", name="b", kind="TIMED_DATA_SOURCE"),
        sink("{destination: {url: 'http://[::1]/', allow_private: true}}", name="c"),
        sink("{destination: {url: 'https://d/', tls: {ca_file: absent.pem}}}", name="d"),
    )
    (tmp_path / "m.py").write_text("def f():\n    return []\n")
    (tmp_path / "flows.yaml").write_text("flows:\n" + "".join(entries))
    assert main(["pipeline", "check", "flows.yaml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["faults"]
    assert [fault["line"] for fault in found] == [2, 3, 5]
    first, second, third = (fault["message"] for fault in found)
    assert first == "flow 'a': sink: destination: 127.0.0.1 is a loopback address, which is refused"
    assert second == "flow 'b': sink: destination: localhost is a loopback address, which is refused"
    assert third.startswith(
        "flow 'd': sink: destination.tls.ca_file: the certificates in absent.pem can't be"
    )
    assert all(fault["hint"] for fault in found)


def test_the_example_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    example = Path(__file__).parents[3] / "examples" / "flows" / "webhooks.yaml"
    assert main(["pipeline", "check", str(example), "--store", "memory://"]) == 0
    assert "the flows are right: 1 flow" in capsys.readouterr().err
