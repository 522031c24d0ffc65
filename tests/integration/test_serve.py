"""`forebay serve` as users run it: how it starts and ends, what it says, and what it never says."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

import forebay
from forebay.model import Unavailable
from tests.integration.http_wire import SCRAPER, Wire, ask, request
from tests.integration.key_steps import add_key
from tests.servers import ForebayServer, environment

PASSWORD = "hunter2correcthorse"


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server that logs everything."""
    with ForebayServer(flags=["--log-level", "debug"]) as server:
        yield server


def serve(*flags: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a server that refuses to start, and see how it ends."""
    command = [sys.executable, "-m", "forebay.app.cli", "serve", *flags]
    variables = {**environment(), **variables}
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def starting(*flags: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a server whose output is read by the test, and which is killed if it doesn't end by itself."""
    command = [sys.executable, "-m", "forebay.app.cli", "serve", *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(server: ForebayServer) -> list[dict[str, Any]]:
    """What it logged; the first line is its address."""
    address, *lines = server.log.read_text().splitlines()
    assert address == server.url
    return [json.loads(line) for line in lines]


# Starting and ending


def test_whoever_reads_the_address_is_not_refused(tmp_path: Path) -> None:
    with starting("--listen", "127.0.0.1:0", cwd=tmp_path) as process:
        assert process.stdout is not None
        scheme, _, place = process.stdout.readline().strip().partition("://")
        host, _, port = place.rpartition(":")
        assert (scheme, host) == ("http", "127.0.0.1")
        assert ask(int(port), "GET", "/healthz").status == 200
        assert (tmp_path / "forebay-data").is_dir()
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    assert [json.loads(line)["message"] for line in said.splitlines()][-1] == "stopped"


def test_two_signals_end_it_while_a_client_still_sends(server: ForebayServer) -> None:
    own = ForebayServer(limits={"shutdown_seconds": 60.0})
    with own, Wire(own.port) as wire, Wire(own.port) as idle:
        wire.send(request("POST", "/v1/queues/orders/messages", b"[", {"Content-Length": "100"}))
        assert idle.ask("GET", "/healthz").status == 200
        own.signal(signal.SIGINT)
        assert idle.is_closed()
        assert own.running
        own.signal(signal.SIGTERM)
        assert own.wait(10) == 0
        wire.answer().problem(503)
    assert server.running


def test_a_port_that_is_taken_is_status_3(server: ForebayServer, tmp_path: Path) -> None:
    run = serve("--listen", f"127.0.0.1:{server.port}", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, "")
    assert "can't listen on" in run.stderr
    assert "--listen" in run.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_without_keys_it_does_not_listen_beyond_loopback(host: str, tmp_path: Path) -> None:
    run = serve("--listen", f"{host}:0", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, "")
    for word in ("no API keys", "forebay keys create", "--insecure"):
        assert word in run.stderr
    assert not (tmp_path / "forebay-data").exists()


@pytest.mark.parametrize("reason", ["insecure", "keys"])
def test_with_keys_or_insecure_it_listens_everywhere(reason: str, tmp_path: Path) -> None:
    flags = ["--listen", "0.0.0.0:0", "--data", str(tmp_path)]
    if reason == "keys":
        add_key(tmp_path, "read")
    else:
        flags.append("--insecure")
    with starting(*flags, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://0.0.0.0:")
        asked = ask(int(address.rpartition(":")[2]), "GET", "/v1/queues")
        process.terminate()
        process.communicate(timeout=30)
    assert asked.status == (401 if reason == "keys" else 200) or asked.problem(503)
    assert process.returncode == 0


def test_a_damaged_file_of_keys_is_status_3_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"version": 1, "keys": [')
    run = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path), cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, "")
    assert "keys.json" in run.stderr


# Configuration


def test_flags_go_before_variables_and_these_before_the_file() -> None:
    limits = {"take_count_max": 5, "wait_seconds_max": "7s", "connections_max": 100}
    with ForebayServer(
        limits=limits,
        sections={"logging": {"level": "error"}},
        variables={"FOREBAY_SERVER_LIMITS_WAIT_SECONDS_MAX": "8s", "FOREBAY_LOGGING_LEVEL": "warning"},
        flags=["--log-level", "info"],
    ) as server:
        shown = ask(server.port, "GET", "/v1/config").json()
        assert shown["server.limits.take_count_max"] == 5
        assert shown["server.limits.wait_seconds_max"] == 8
        assert shown["logging.level"] == "info"
        assert shown["store.data"] == str(server.data)
        problem = ask(server.port, "POST", "/v1/take", {"queues": ["orders"], "count": 6}).problem(400)
        assert "up to 5" in problem["hint"]
        assert "ready" in [line["message"] for line in lines_of(server)]


def test_a_bad_configuration_is_status_3_with_all_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f"server:\n  lisen: x\nstore:\n  url: mysql://me:{PASSWORD}@host/db\n")
    variables = {"FOREBAY_LOGGING_LEVEL": "loud", "FOREBAY_SERVR_LISTEN": "x"}
    run = serve("--config", str(file), "--tls-key", "missing.pem", cwd=tmp_path, **variables)
    assert (run.returncode, run.stdout) == (3, "")
    for word in (
        "server.lisen",
        "server.listen?",
        "store.url",
        "FOREBAY_LOGGING_LEVEL",
        "FOREBAY_SERVR_LISTEN",
    ):
        assert word in run.stderr
    assert PASSWORD not in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


# What it says


def test_every_line_of_the_log_is_json_and_names_the_request(server: ForebayServer) -> None:
    with Wire(server.port) as wire:
        given = wire.ask("GET", "/v1/queues", headers={"X-Request-Id": "mine-1"})
        assert given.headers["x-request-id"] == "mine-1"
        made = wire.ask("GET", "/v1/queues/none").problem(404)["request_id"]
        wire.ask("GET", "/healthz")  # a request is written down after its answer, and before the next one
    by_id = {line.get("request_id"): line for line in lines_of(server)}
    assert (by_id["mine-1"]["status"], by_id["mine-1"]["level"]) == (200, "debug")
    assert by_id[made]["status"] == 404
    for line in by_id.values():
        assert {"at", "level", "logger", "message"} <= line.keys()


def test_an_id_that_would_break_a_line_is_not_taken_over(server: ForebayServer) -> None:
    for id in ("x" * 200, "caf\xe9", "a\tb"):
        answer = ask(server.port, "GET", "/healthz", headers={"X-Request-Id": id})
        assert answer.status == 200
        assert answer.headers["x-request-id"] != id
    lines_of(server)


def test_the_trace_of_a_push_is_in_the_headers_of_its_messages(server: ForebayServer) -> None:
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}
    own = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-00"}
    messages = [{"payload": 1}, {"payload": 2, "headers": {"flow": "f"}}, {"payload": 3, "headers": own}]
    with Wire(server.port) as wire:
        assert wire.ask("POST", "/v1/queues/traced/messages", messages, trace).status == 201
        lines = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        stream = {**trace, "Content-Type": "application/x-ndjson"}
        assert wire.ask("POST", "/v1/queues/traced/messages", lines, stream).status == 201
        bad = {"traceparent": "00-xyz"}
        assert wire.ask("POST", "/v1/queues/traced/messages", messages[:1], bad).status == 201
        take = {"count": 10, "wait_seconds": 10}
        tasks = wire.ask("POST", "/v1/queues/traced/take", take).json()["tasks"]
    found = [task.get("headers") for task in sorted(tasks, key=lambda task: int(task["id"]))]
    assert found == [trace, {"flow": "f", **trace}, own] * 2 + [None]


def test_the_metrics_are_what_prometheus_reads(server: ForebayServer) -> None:
    assert ask(server.port, "POST", "/v1/queues/counted/messages", [{"payload": 1}] * 3).status == 201
    ask(server.port, "GET", "/v1/nothing").problem(404)
    answer = ask(server.port, "GET", "/metrics", headers=SCRAPER)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert samples["forebay_messages_total", "pushed"] >= 3
    assert samples["forebay_http_requests_total", "/v1/queues/{queue}/messages", "201", "POST"] >= 1
    assert samples["forebay_http_requests_total", "(any)", "(none)", "404"] >= 1
    assert samples["forebay_ready",] == 1
    count = samples["forebay_http_request_seconds_count", "/v1/queues/{queue}/messages"]
    assert samples["forebay_http_request_seconds_bucket", "+Inf", "/v1/queues/{queue}/messages"] == count >= 1


# What it never says


def everything_said(server: ForebayServer, headers: dict[str, str]) -> str:
    """All that a server lets out: its log, and answers of all kinds."""
    with Wire(server.port) as wire:
        paths = ("/v1/config", "/metrics", "/readyz", "/openapi.json", "/v1/queues", "/none")
        said = [wire.ask("GET", path, headers=headers) for path in paths]
        said.append(wire.ask("POST", "/v1/queues/orders/messages", b"{", headers))
        wrong = {"Authorization": headers["Authorization"][:-1]}
        said.append(wire.ask("GET", "/v1/queues", headers=wrong))
        said.append(wire.ask("GET", "/v1/queues", headers={"Authorization": f"Basic {PASSWORD}"}))
    return "".join(f"{answer.headers}{answer.body!r}" for answer in said) + server.log.read_text()


@pytest.mark.parametrize("state", ["there", "away"])
def test_no_secret_is_in_logs_answers_or_metrics(postgres_dsn: str, state: str) -> None:
    url = postgres_dsn.replace("forebay@", f"forebay:{PASSWORD}@")
    assert PASSWORD in url
    if state == "away":
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        head, _, tail = url.rpartition("@")
        url = f"{head}@127.0.0.1:{port}/{tail.partition('/')[2]}"
    warm = f"valkey://:{PASSWORD}@127.0.0.1:1/0"
    server = ForebayServer(url, flags=["--log-level", "debug", "--warm", warm])
    key = add_key(server.data, "admin")
    try:
        server.start(ready=False)
        if state == "there":
            with Wire(server.port) as wire:
                while wire.ask("GET", "/readyz").status != 200:
                    pass
        said = everything_said(server, key.headers)
        assert server.stop() == 0
        said += server.log.read_text()
        assert ":***@" in said
        assert PASSWORD not in said
        assert key.text.rpartition("_")[2] not in said
        assert key.text[:-1].rpartition("_")[2] not in said
    finally:
        server.close()


# TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ForebayServer, Path]]:
    """Give a server with a certificate and a key for itself, and the file of who signed it."""
    folder, trust = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = trust.issue_cert("127.0.0.1")
    certificate, key, signer = (folder / name for name in ("certificate.pem", "key.pem", "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    trust.cert_pem.write_to_path(str(signer))
    context = ssl.create_default_context(cafile=signer)
    with ForebayServer(tls_certificate=str(certificate), tls_key=str(key), tls=context) as server:
        yield server, signer


async def test_the_client_works_over_tls_with_the_file_of_who_signed_it(
    tls: tuple[ForebayServer, Path],
) -> None:
    server, signer = tls
    assert server.url.startswith("https://")
    async with forebay.open(server.url, ca_file=signer) as store:
        await store.create_queue("orders")
        await store.put_task("orders", b"1")
        (task,) = await store.get_task("orders", wait_seconds=10)
        await store.done_task([task])
        assert task.data == b"1"


async def test_the_client_refuses_a_certificate_that_nobody_it_knows_has_signed(
    tls: tuple[ForebayServer, Path],
) -> None:
    async with forebay.Client(tls[0].url, timeout_seconds=2) as store:
        with pytest.raises((Unavailable, forebay.Misconfigured), match="certificate"):
            await store.queues()


def test_commands_trust_the_file_that_openssl_is_told(
    tls: tuple[ForebayServer, Path], tmp_path: Path
) -> None:
    server, signer = tls
    command = [sys.executable, "-m", "forebay.app.cli", "queues", "list", "--store", server.url]
    variables = {**environment(), "SSL_CERT_FILE": os.fspath(signer)}
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
