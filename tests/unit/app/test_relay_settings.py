"""A relay takes metrics-governor's file and flags, every key of them, and says what it doesn't know."""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.app.cli import main
from forebay.app.configuring import load_settings
from forebay.app.configuring.schema import RELAY
from forebay.app.relay_settings import (
    RELAY_FLAGS,
    addresses,
    declare_relay_flags,
    load_relay,
)
from forebay.app.settings import RelayConfig, Settings
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.model import Misconfigured

GOVERNORS_FILE = """
exporter:
  queue:
    type: disk
    enabled: true
    path: ./queue
    max_size: 10000
    max_bytes: 1Gi
    full_behavior: drop_oldest
    inmemory_blocks: 2048
    chunk_size: 512Mi
    meta_sync_interval: 1s
    write_buffer_size: 256Ki
    compression: snappy
    always_queue: true
    workers: 0
    backoff:
      enabled: true
      multiplier: 2.0
    circuit_breaker:
      enabled: true
      threshold: 5
      reset_timeout: 30s
    pipeline_split:
      enabled: false
      preparer_count: 0
      sender_count: 0
      channel_size: 256
    adaptive_workers:
      enabled: false
      min_workers: 1
      max_workers: 0
"""

DEFAULT_FLAGS = """
-queue-enabled true -queue-type disk -queue-path ./queue -queue-max-size 10000 -queue-max-bytes 1Gi
-queue-full-behavior drop_oldest -queue-always-queue true -queue-workers 0 -queue-inmemory-blocks 2048
-queue-chunk-size 512Mi -queue-meta-sync 1s -queue-stale-flush 30s -queue-write-buffer-size 256Ki
-queue-compression snappy -queue-retry-interval 5s -queue-max-retry-delay 5m -queue-backoff-enabled true
-queue-backoff-multiplier 2.0 -queue-circuit-breaker-enabled true -queue-circuit-breaker-threshold 5
-queue-circuit-breaker-reset-timeout 30s -queue-memory-percent 0.10 -memory-limit-ratio 0.85
-queue-adaptive-enabled true -queue-target-utilization 0.85
"""
"""As the document of the original lists them, but for the type, which it gives as `memory|disk`."""

GOVERNORS_FLAGS = {
    "--queue-enabled": ("enabled", "false", False),
    "--queue-type": ("type", "memory", "memory"),
    "--queue-path": ("path", "/var/q", "/var/q"),
    "--queue-max-size": ("max_size", "7", 7),
    "--queue-max-bytes": ("max_bytes", "2Gi", 2 << 30),
    "--queue-full-behavior": ("full_behavior", "block", "block"),
    "--queue-always-queue": ("always_queue", "false", False),
    "--queue-workers": ("workers", "16", 16),
    "--queue-inmemory-blocks": ("inmemory_blocks", "64", 64),
    "--queue-chunk-size": ("chunk_size", "64Mi", 64 << 20),
    "--queue-meta-sync": ("meta_sync_interval", "2s", 2.0),
    "--queue-stale-flush": ("stale_flush_interval", "10s", 10.0),
    "--queue-write-buffer-size": ("write_buffer_size", "64Ki", 64 << 10),
    "--queue-compression": ("compression", "none", "none"),
    "--queue-retry-interval": ("retry_interval", "1s", 1.0),
    "--queue-max-retry-delay": ("max_retry_delay", "1m", 60.0),
    "--queue-backoff-enabled": ("backoff.enabled", "false", False),
    "--queue-backoff-multiplier": ("backoff.multiplier", "1.5", 1.5),
    "--queue-circuit-breaker-enabled": ("circuit_breaker.enabled", "false", False),
    "--queue-circuit-breaker-threshold": ("circuit_breaker.threshold", "9", 9),
    "--queue-circuit-breaker-reset-timeout": ("circuit_breaker.reset_timeout", "5s", 5.0),
    "--queue-memory-percent": ("memory_percent", "0.2", 0.2),
    "--memory-limit-ratio": ("memory_limit_ratio", "0.5", 0.5),
    "--queue-adaptive-enabled": ("adaptive_enabled", "false", False),
    "--queue-target-utilization": ("target_utilization", "0.5", 0.5),
}


def load(*words: str, file: Path | None = None, text: str = "") -> RelayConfig:
    parser = argparse.ArgumentParser()
    declare_relay_flags(parser)
    if file is not None:
        file.write_text(text)
        words = (*words, "--config", str(file))
    return load_relay(parser.parse_args(words))


def value_at(settings: msgspec.Struct, path: str) -> Any:
    found: Any = settings
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_file_of_the_original_says_what_the_defaults_are(tmp_path: Path) -> None:
    loaded = load(file=tmp_path / "governor.yaml", text=GOVERNORS_FILE)
    assert loaded == RelayConfig()
    assert loaded.exporter.queue.durability == "always"


def test_the_flags_of_the_original_say_what_the_defaults_are() -> None:
    listed = DEFAULT_FLAGS.split()
    assert {"-" + word for word in listed[::2]} == set(GOVERNORS_FLAGS)
    assert load(*("-" * word.startswith("-") + word for word in listed)) == RelayConfig()


@pytest.mark.parametrize("flag", GOVERNORS_FLAGS)
def test_every_flag_of_the_original_is_there(flag: str) -> None:
    path, text, value = GOVERNORS_FLAGS[flag]
    assert value_at(SendQueueSettings(), path) != value
    assert value_at(load(flag, text).exporter.queue, path) == value


def test_every_setting_of_the_queue_has_a_flag() -> None:
    with_flag = set(RELAY_FLAGS.values())
    assert {path for path in RELAY.settings if path.startswith("exporter.queue.")} <= with_flag


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    text = "exporter: {queue: {max_size: 5, workers: 3}}\nrelay: {to: http://a/}\n"
    made = load(
        "--queue-max-size", "6", "--to", "http://b", "--to", "http://c/x", file=tmp_path / "f", text=text
    )
    assert (made.exporter.queue.max_size, made.exporter.queue.workers) == (6, 3)
    assert addresses(made) == ["http://b", "http://c/x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exporter: {queue: {max_sise: 1}}", "did you mean exporter.queue.max_size?"),
        ("exporter: {queue: {backof: {}}}", "did you mean exporter.queue.backoff?"),
        ("exporter: {queue: {circuit_breaker: {treshold: 1}}}", "exporter.queue.circuit_breaker.threshold?"),
        ("exporter: {queue: {full_behavior: drop_odlest}}", "did you mean drop_oldest?"),
        ("exporter: {queue: {max_bytes: many}}", "'many' is not a size"),
        ("exporter: {queue: {retry_interval: 5x}}", "'5x' is not a duration"),
        ("exporter: {queue: {memory_percent: 1.5}}", "too much"),
        ("exporter: {queue: {retry_interval: 10m}}", "less than retry_interval"),
        ("relay: {metrics_prefix: 'a b'}", "the start of a metric's name"),
    ],
)
def test_a_mistake_is_said_with_its_place_and_the_nearest_good_key(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(file=tmp_path / "relay.yaml", text=text)
    assert said in str(caught.value)
    assert "relay.yaml:1" in str(caught.value)


def test_a_relay_without_a_destination_is_refused() -> None:
    with pytest.raises(Misconfigured, match="--to"):
        addresses(load())


def test_variables_come_between_the_file_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_EXPORTER_QUEUE_MAX_SIZE", "6")
    monkeypatch.setenv("FOREBAY_EXPORTER_QUEUE_WORKERS", "8")
    monkeypatch.setenv("FOREBAY_RELAY_TO", "http://b")
    monkeypatch.setenv("FOREBAY_SERVER_LISTEN", "for:1")  # a server's, and none of a relay's business
    monkeypatch.setenv("FOREBAY_DELIVER_HOOKS_QUEUE", "likewise")
    text = "exporter: {queue: {max_size: 5, workers: 3}}\nrelay: {to: http://a/}\n"
    made = load("--queue-workers", "9", file=tmp_path / "f", text=text)
    assert (made.exporter.queue.max_size, made.exporter.queue.workers) == (6, 9)
    assert addresses(made) == ["http://b"]


def test_a_misspelt_variable_is_said_with_the_nearest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_EXPORTER_QUEUE_MAX_SISE", "6")
    with pytest.raises(Misconfigured, match=r"did you mean FOREBAY_EXPORTER_QUEUE_MAX_SIZE\?"):
        load()


def test_a_server_leaves_the_variables_of_a_relay_alone() -> None:
    environ = {"FOREBAY_RELAY_LISTEN": "127.0.0.1:1", "FOREBAY_EXPORTER_QUEUE_TYPE": "memory"}
    assert load_settings(environ=environ).settings == Settings()


def test_the_settings_of_a_relay_are_shown_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOREBAY_EXPORTER_QUEUE_MAX_SIZE", "6")
    file = tmp_path / "relay.yaml"
    file.write_text("relay: {to: 'https://me:hunter2@a/'}\n")
    assert main(["config", "show", "--relay", "--config", str(file), "--json"]) == 0
    said = capsys.readouterr().out
    rows = {row["key"]: row for row in json.loads(said)}
    assert rows["exporter.queue.max_size"]["source"] == "FOREBAY_EXPORTER_QUEUE_MAX_SIZE"
    assert (rows["relay.to"]["value"], rows["relay.to"]["source"]) == ("***", f"{file}:1")
    assert rows["relay.limits.headers_max"]["source"] == "default"
    assert "hunter2" not in said
    assert main(["config", "check", str(file), "--relay"]) == 0
    file.write_text("relay: {lisen: x}")
    assert main(["config", "check", str(file), "--relay"]) == 3
    assert "did you mean relay.listen?" in capsys.readouterr().err
    assert main(["config", "show", "--relay", "--listen", "127.0.0.1:1"]) == 3
    assert "--listen is a flag of a server" in capsys.readouterr().err


GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "put-it-in-front-of-prometheus.md"


def test_the_guides_example_of_destinations_is_read(tmp_path: Path) -> None:
    (text,) = [part for part in GUIDE.read_text().split("```") if part.startswith("yaml\nrelay:\n")]
    found = load(file=tmp_path / "relay.yaml", text=text.removeprefix("yaml\n")).relay.destinations
    mimir, archive = found["mimir"], found["archive"]
    assert (mimir.url, mimir.headers) == ("https://mimir.example/api/v1/push", {"X-Scope-OrgID": "team-a"})
    assert (mimir.auth.bearer_file, mimir.tls.ca_file) == ("/run/secrets/mimir", "/etc/ssl/mimir.pem")
    assert (mimir.concurrency, mimir.timeout_seconds, mimir.retry_auth) == (8, 10.0, None)
    assert (archive.auth.user, archive.requests_per_second) == ("relay", 50.0)


def test_variables_set_options_of_destinations_and_make_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_RELAY_DESTINATIONS_MIMIR_AUTH_BEARER", "s3cret")
    monkeypatch.setenv("FOREBAY_RELAY_DESTINATIONS_MORE_URL", "http://c/")
    text = "relay: {to: http://a/, destinations: {mimir: {url: http://b/, burst: 2}}}"
    made = load("--to", "http://x/", file=tmp_path / "f", text=text)
    assert addresses(made) == ["http://x/"]
    assert list(made.relay.destinations) == ["mimir", "more"]
    assert made.relay.destinations["mimir"].auth.bearer == "s3cret"
    assert made.relay.destinations["mimir"].burst == 2
    assert load_settings(environ={"FOREBAY_RELAY_DESTINATIONS_MIMIR_URL": "x"}).settings == Settings()


def test_destinations_alone_are_enough(tmp_path: Path) -> None:
    made = load(file=tmp_path / "f", text="relay: {destinations: {mimir: {url: http://b/}}}")
    assert addresses(made) == []


@pytest.mark.parametrize(
    ("destinations", "said"),
    [
        ("[{url: http://a/}]", "not a mapping"),
        ("{a: {}}", "it is missing; there is no default"),
        ("{a: http://a/}", "not a mapping"),
        ("{a b: {url: http://a/}}", "is not a name"),
        ("{a: {url: http://a/}, a: {url: http://b/}}", "is here twice"),
        ("{a: {url: ftp://a/}}", "relay.destinations.a.url"),
        ("{a: {url: http://a/, hedaers: {}}}", "did you mean headers?"),
        ("{a: {url: http://a/, headers: {Host: x}}}", "not a header that can be set"),
        ("{a: {url: http://a/, concurrency: 0}}", "relay.destinations.a.concurrency"),
        ("{a: {url: http://a/, auth: {bearer: x, bearer_file: y}}}", "bearer and bearer_file are both given"),
        ("{a: {url: http://a/, auth: {bearer_file: y, user: x}}}", "bearer and user are both given"),
        ("{a: {url: http://a/, auth: {password_file: y}}}", "password is given without user"),
        ("{a: {url: 'http://me:x@a/', auth: {bearer_file: y}}}", "url and auth both say who we are"),
        ("{a: {url: http://a/, tls: {key_file: y}}}", "key_file is given without cert_file"),
    ],
)
def test_a_mistake_in_a_destination_is_said_with_its_place(
    tmp_path: Path, destinations: str, said: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(file=tmp_path / "relay.yaml", text=f"relay:\n  destinations: {destinations}\n")
    assert said in str(caught.value)
    assert "relay.yaml" in str(caught.value)


def test_destinations_are_shown_without_their_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text(
        "relay: {destinations: {mimir: {url: 'http://b/', burst: 2, headers: {X-Key: hunter2},"
        " auth: {bearer: hunter3}}}}"
    )
    assert main(["config", "show", "--relay", "--config", str(file), "--json"]) == 0
    said = capsys.readouterr().out
    rows = {row["key"]: row for row in json.loads(said)}
    assert rows["relay.destinations.mimir.burst"]["value"] == 2
    assert rows["relay.destinations.mimir.auth.bearer"]["value"] == "***"
    assert "hunter" not in said
