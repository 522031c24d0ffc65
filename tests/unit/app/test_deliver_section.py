"""The section `deliver` of the configuration: destinations by name, and all that is wrong with them."""

from pathlib import Path

import pytest

from forebay.app.configuring import load_settings
from forebay.model import Misconfigured

WHOLE = """
deliver:
  hooks:
    queue: orders
    group: hooks
    retry_seconds: 10s
    destination:
      url: https://hooks.example/in
      body: ndjson
      batch_bytes_max: 256Ki
      timeout_seconds: 1m
      requests_per_second: 50
      headers:
        X-Team: blue
        X-Number: 7
      auth:
        bearer: s3cret
      signing_secrets:
        - whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
        - whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
      allowed_networks: [10.1.0.0/16]
  audit-log:
    queue: orders
    destination: {url: 'http://audit.internal/x', allow_private: yes}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "forebay.yaml"
    file.write_text(text)
    return file


def test_destinations_are_read_by_name(tmp_path: Path) -> None:
    found = load_settings(file=write(tmp_path, WHOLE)).deliveries
    assert list(found) == ["hooks", "audit-log"]
    hooks = found["hooks"]
    assert (hooks.queue, hooks.group, hooks.retry_seconds) == ("orders", "hooks", 10.0)
    to = hooks.destination
    assert (to.body, to.batch_bytes_max, to.timeout_seconds) == ("ndjson", 256 << 10, 60.0)
    assert to.headers == {"X-Team": "blue", "X-Number": "7"}
    assert (to.auth.bearer, len(to.signing_secrets), to.allowed_networks) == ("s3cret", 2, ("10.1.0.0/16",))
    assert found["audit-log"].destination.allow_private
    assert found["audit-log"].group == "workers"


def test_a_file_without_the_section_has_none(tmp_path: Path) -> None:
    assert load_settings(file=write(tmp_path, "logging: {level: info}\ndeliver:\n")).deliveries == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deliver: 7", r"deliver \(.*:1\): it is a plain value, not a mapping"),
        ("deliver: {a: 7}", r"deliver.a \(.*\): it is a plain value, not a mapping|the document is"),
        ("deliver: {a b: {}}", "is not a name of letters"),
        ("deliver: {a: {queue: q}}", r"deliver.a.destination.url .*: it is missing"),
        ("deliver: {a: {destination: {url: 'http://x'}}}", r"deliver.a.queue .*: it is missing"),
        ("deliver: {a: {queue: q, grop: x, destination: {url: 'http://x'}}}", "did you mean group"),
        (
            "deliver: {a: {queue: q, destination: {url: ftp://x}}}",
            r"deliver.a.destination.url .*not the address",
        ),
        (
            "deliver: {a: {queue: q, destination: {url: 'http://x', timout_seconds: 1}}}",
            "did you mean .*timeout_seconds",
        ),
        ("deliver: {a: {queue: q, destination: {url: 'http://x', concurrency: 0}}}", "too little"),
        ("deliver: {a: {queue: q, destination: {url: 'http://x', headers: [a]}}}", "a list, not a mapping"),
        ("deliver: {a: {queue: q, destination: {url: 'http://x', allowed_networks: x}}}", "not a list"),
        (
            "deliver: {a: {queue: q, destination: {url: 'http://x', signing_secrets: [[x]]}}}",
            "not a plain value",
        ),
        ("delivr: {}", "did you mean deliver"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        load_settings(file=write(tmp_path, text))


def test_all_faults_are_said_and_no_secret(tmp_path: Path) -> None:
    text = """
deliver:
  a:
    queue: q
    visibility_seconds: soon
    destination: {url: 'https://me:hunter2@x/', auth: {bearer: hunter3}, signing_secrets: [hunter4]}
  b:
    qeue: q
"""
    with pytest.raises(Misconfigured) as caught:
        load_settings(file=write(tmp_path, text))
    message = str(caught.value)
    for part in (
        "deliver.a.visibility_seconds",
        "deliver.b.qeue",
        "deliver.a.destination",
        "deliver.b.queue",
    ):
        assert part in message
    assert "hunter" not in message


def test_variables_come_before_the_file_and_make_entries_of_their_own(tmp_path: Path) -> None:
    environ = {
        "FOREBAY_DELIVER_HOOKS_DESTINATION_AUTH_BEARER": "rotated",
        "FOREBAY_DELIVER_HOOKS_RETRIES_MAX": "7",
        "FOREBAY_DELIVER_AUDIT_LOG_DESTINATION_HEADERS": '{"X-Team": "red"}',
        "FOREBAY_DELIVER_AUDIT_LOG_GROUP": "",
        "FOREBAY_DELIVER_THIRD_QUEUE_QUEUE": "invoices",
        "FOREBAY_DELIVER_THIRD_QUEUE_DESTINATION_URL": "https://third.example/",
    }
    loaded = load_settings(file=write(tmp_path, WHOLE), environ=environ)
    found = loaded.deliveries
    assert list(found) == ["hooks", "audit-log", "third_queue"]
    assert (found["hooks"].destination.auth.bearer, found["hooks"].retries_max) == ("rotated", 7)
    assert found["audit-log"].destination.headers == {"X-Team": "red"}
    assert found["third_queue"].queue == "invoices"
    assert loaded.origins["deliver.hooks.retries_max"] == "FOREBAY_DELIVER_HOOKS_RETRIES_MAX"
    alone = load_settings(environ={name: text for name, text in environ.items() if "THIRD" in name})
    assert list(alone.deliveries) == ["third_queue"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param(
            "FOREBAY_DELIVER_HOOKS_DESTINATION_TIMOUT_SECONDS",
            "did you mean FOREBAY_DELIVER_HOOKS_DESTINATION_TIMEOUT_SECONDS?",
            id="setting",
        ),
        pytest.param("FOREBAY_DELIVER_NEW_QEUE", "did you mean FOREBAY_DELIVER_NEW_QUEUE?", id="new-entry"),
        pytest.param("FOREBAY_DELIVER_HOKS_GROUP", "did you mean deliver.hooks?", id="entry"),
        pytest.param("FOREBAY_DELIVR_HOOKS_GROUP", "there is no such setting", id="section"),
    ],
)
def test_a_misspelt_variable_is_said_with_the_nearest_one(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load_settings(file=write(tmp_path, WHOLE), environ={name: "x"})
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_a_variable_that_fits_two_entries_is_refused(tmp_path: Path) -> None:
    entry = "{queue: q, destination: {url: 'https://x.example/'}}"
    file = write(tmp_path, f"deliver:\n  audit-log: {entry}\n  audit_log: {entry}\n")
    assert list(load_settings(file=file).deliveries) == ["audit-log", "audit_log"]
    with pytest.raises(Misconfigured, match="it fits both"):
        load_settings(file=file, environ={"FOREBAY_DELIVER_AUDIT_LOG_GROUP": "x"})


def test_all_settings_are_shown_with_their_origin_and_without_secrets(tmp_path: Path) -> None:
    secret = {"FOREBAY_DELIVER_HOOKS_DESTINATION_AUTH_BEARER": "hunter2"}
    file = write(tmp_path, WHOLE.replace("X-Team: blue", "Authorization: hunter3"))
    loaded = load_settings(file=file, environ=secret)
    rows = {row.key: row for row in loaded.rows()}
    queue = rows["deliver.hooks.queue"]
    assert (queue.value, queue.source) == ("orders", f"{file}:4")
    assert rows["deliver.hooks.destination.timeout_seconds"].text == "1m"
    assert rows["deliver.hooks.breaker_seconds"].source == "default"
    bearer = rows["deliver.hooks.destination.auth.bearer"]
    assert (bearer.value, bearer.source) == ("***", "FOREBAY_DELIVER_HOOKS_DESTINATION_AUTH_BEARER")
    everything = str([(row.value, row.text) for row in rows.values()])
    for hidden in ("hunter", "whsec_", "hooks.example"):
        assert hidden not in everything
