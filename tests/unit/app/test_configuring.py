"""Settings come from a file, the environment and flags; all that is wrong is said, without secrets."""

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.app.configuring import (
    OTHER_VARIABLES,
    SETTINGS,
    Reading,
    declare_settings,
    file_faults,
    load_from,
    load_settings,
    misconfigured,
    read_settings,
)
from forebay.app.configuring.faults import Given
from forebay.app.configuring.flags import FLAGS
from forebay.app.configuring.texts import parse, shown
from forebay.app.settings import Settings, StoreSection
from forebay.model import Misconfigured


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forebay.yaml"


def read(file: Path, text: str | bytes, environ: Mapping[str, str] | None = None) -> Reading:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_settings(file=file, environ=environ)


def texts(reading: Reading) -> list[str]:
    """What is said, with the folder of the test left out."""
    return [re.sub(r"/\S*/", "", str(fault)) for fault in reading.faults]


def test_nothing_said_gives_the_defaults() -> None:
    loaded = load_settings()
    assert loaded.settings == Settings()
    assert {row.source for row in loaded.rows()} == {"default"}


def test_flags_come_before_variables_and_these_before_the_file(file: Path) -> None:
    file.write_text("server: {listen: 'file:1', insecure: yes}\nlogging:\n  level: debug\n")
    loaded = load_settings(
        file=file,
        environ={"FOREBAY_SERVER_LISTEN": "variable:2", "FOREBAY_LOGGING_LEVEL": "error", "PATH": "x"},
        flags={"server.listen": Given("flag:3", "--listen")},
    )
    assert loaded.settings.server.listen == "flag:3"
    assert loaded.settings.logging.level == "error"
    assert loaded.settings.server.insecure is True
    sources = {row.key: row.source for row in loaded.rows()}
    assert sources["server.listen"] == "--listen"
    assert sources["logging.level"] == "FOREBAY_LOGGING_LEVEL"
    assert sources["server.insecure"] == f"{file}:1"
    assert sources["server.create_queues"] == "default"


def test_sizes_and_durations_are_written_as_people_write_them(file: Path) -> None:
    reading = read(
        file,
        """
        server:
          limits: {body_bytes_max: 8Mi, idle_seconds: 1m30s, connections_max: 7}
        store: {tail_bytes: 1048576}
        keys: {rate_per_second: 0.5}
        """,
    )
    assert reading.loaded is not None
    made = reading.loaded.settings
    assert made.server.limits.body_bytes_max == 8 << 20
    assert made.server.limits.idle_seconds == 90
    assert made.server.limits.connections_max == 7
    assert made.store.tail_bytes == 1 << 20
    assert made.keys.rate_per_second == 0.5


def test_every_fault_is_said_with_its_place_and_the_nearest_good_key(file: Path) -> None:
    reading = read(
        file,
        """\
server:
  lisen: 127.0.0.1:1
  body_bytes_max: 3
  limits:
    body_bytes_max: 3X
    idle_seconds: 0s
    connections_max: [1]
    take_count_max: many
  limits: {}
store:
  url: mysql://host/db
logging:
  level: debog
loging: {}
keys: 7
limits:
  block_messages_max: 100001
""",
        {"FOREBAY_SERVER_LISEN": "x", "FOREBAY_SERVER_INSECURE": "perhaps"},
    )
    assert reading.loaded is None
    expected = [
        ("server.lisen", "forebay.yaml:2", "no such setting; did you mean server.listen?"),
        ("server.body_bytes_max", "forebay.yaml:3", "did you mean server.limits.body_bytes_max?"),
        ("server.limits.body_bytes_max", "forebay.yaml:5", "'3X' is not a size; write it as"),
        ("server.limits.idle_seconds", "forebay.yaml:6", "0s is too little; give 100ms or more"),
        ("server.limits.connections_max", "forebay.yaml:7", "it is a list, not a plain value; give one"),
        ("server.limits.take_count_max", "forebay.yaml:8", "'many' is not a whole number; write it"),
        ("server.limits", "forebay.yaml:9", "is here twice, first in line 4; keep one of them"),
        ("store.url", "forebay.yaml:11", "'mysql://host/db' is not an address like sqlite:///"),
        ("logging.level", "forebay.yaml:13", "'debog' is none of debug, error"),
        ("loging", "forebay.yaml:14", "there is no such setting; did you mean logging?"),
        ("keys", "forebay.yaml:15", "it is a plain value, not a mapping; write keys below it, like file"),
        ("limits.block_messages_max", "forebay.yaml:17", "100001 is too much; give 100000 or less"),
        ("", "environment variable FOREBAY_SERVER_LISEN", "did you mean FOREBAY_SERVER_LISTEN?"),
        ("server.insecure", "FOREBAY_SERVER_INSECURE", "'perhaps' is neither true nor false; write true"),
    ]
    for key, source, words in expected:
        (said,) = (str(fault) for fault in reading.faults if fault.key == key)
        assert source in said
        assert words in said
    assert len(reading.faults) == len(expected)
    assert len(str(misconfigured(reading.faults)).splitlines()) == len(reading.faults) + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "store: {url: 'memory://?warm=valkey://a', warm: 'valkey://b'}",
            "store.warm (forebay.yaml:1): the warm tier is given twice",
        ),
        ("server: {tls_key: key.pem}", "server.tls_certificate (forebay.yaml:1): tls_key is set, but"),
        (
            "limits: {message_bytes_max: 16Mi}",
            "limits.block_bytes_max (forebay.yaml:1): limit block_bytes_max",
        ),
        (
            "server: {limits: {pending_bytes_max: 1Mi}}",
            "server.limits.pending_bytes_max (forebay.yaml:1): pending_bytes_max is 1048576, less than",
        ),
    ],
)
def test_what_does_not_go_together_is_said_with_its_place(file: Path, text: str, said: str) -> None:
    (fault,) = texts(read(file, text))
    assert fault.startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "the document is a list, not a mapping"),
        ("just words", "the document is a plain value, not a mapping"),
        ("server: [", "is not YAML"),
        ("server: {listen: 'x", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        (b"\xff\xfe\xff", "is not YAML"),
        (b"server:\n  listen: \x00", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("x: " + "y" * (1 << 20), "over 1048576 bytes"),
        ("server: {listen: }", "server.listen (forebay.yaml:1): it has no value; give one"),
        ("server: {? [1] : 2}", "a key is a list, not a word"),
        ("server: {listen: !!binary aGk=}", "a value with a tag"),
        ("server: &here {limits: *here}", "server.limits.limits (forebay.yaml:1): there is no such setting"),
        (
            "server: {listen: a}\nserver: {listen: b}",
            "server (forebay.yaml:2): is here twice, first in line 1",
        ),
    ],
)
def test_a_file_of_a_wrong_form_is_an_error(file: Path, text: str | bytes, said: str) -> None:
    assert any(said in fault for fault in texts(read(file, text)))


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "server:\n", "null", "store: {url: null}", "store: {url: none}"]
)
def test_what_says_nothing_is_right(file: Path, text: str) -> None:
    loaded = read(file, text).loaded
    assert loaded is not None
    assert loaded.settings == Settings()


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(Misconfigured, match=r"--config: .* can't be read: "):
            load_settings(file=path)


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load_settings(environ={"FOREBAY_SERVER_LISTEN": ""}).settings == Settings()


def test_variables_of_commands_are_no_settings() -> None:
    values = dict.fromkeys(OTHER_VARIABLES, "x") | {"FOREBAY_STORE": "http://127.0.0.1:6632"}
    assert load_settings(environ=values).settings == Settings()


def test_the_store_of_commands_is_the_log_of_a_server_unless_something_else_names_it(file: Path) -> None:
    log, mine, named = "postgresql://db/forebay", "sqlite:///mine.db", "memory://"
    file.write_text("store: {url: tarantool://host:3301}")
    loaded = load_settings(file=file, environ={"FOREBAY_STORE": log})
    assert (loaded.settings.store.url, loaded.origins["store.url"]) == (log, "FOREBAY_STORE")
    both = {"FOREBAY_STORE": log, "FOREBAY_STORE_URL": mine}
    assert load_settings(file=file, environ=both).settings.store.url == mine
    flags = {"store.url": Given(named, "--store")}
    assert load_settings(file=file, environ=both, flags=flags).settings.store.url == named
    for nothing in ("", "https://queues.example"):
        loaded = load_settings(file=file, environ={"FOREBAY_STORE": nothing})
        assert loaded.settings.store.url == "tarantool://host:3301"


def test_a_store_that_is_no_log_is_refused_and_not_passed_over() -> None:
    with pytest.raises(Misconfigured, match=r"store\.url .*FOREBAY_STORE"):
        load_settings(environ={"FOREBAY_STORE": "db.example:5432"})


def test_a_value_is_checked_although_another_overrides_it(file: Path) -> None:
    reading = read(file, "server: {listen: nonsense}", {"FOREBAY_SERVER_LISTEN": "localhost:1"})
    assert len(reading.faults) == 1


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len({*variables, *OTHER_VARIABLES}) == len(variables) + len(OTHER_VARIABLES)


@pytest.mark.parametrize("path", SETTINGS)
def test_a_default_is_within_its_own_bounds(path: str) -> None:
    setting = SETTINGS[path]
    text = shown(setting, setting.default)
    assert parse(setting, text) == setting.default


@pytest.mark.parametrize("path", SETTINGS)
def test_every_setting_can_be_set_in_a_file_and_by_variable(path: str, tmp_path: Path) -> None:
    setting, other = SETTINGS[path], another_value(path)
    said = other if setting.is_secret else shown(setting, other)
    document: Any = said
    if setting.kind in ("list", "mapping"):
        document = dict(other) if setting.kind == "mapping" else list(other)
    for name in reversed(path.split(".")):
        document = {name: document}
    (tmp_path / "forebay.yaml").write_text(yaml.safe_dump(document))
    pairs = {
        "server.tls_key": {"FOREBAY_SERVER_TLS_CERTIFICATE": "x.pem"},
        "server.tls_certificate": {"FOREBAY_SERVER_TLS_KEY": "x.pem"},
        "jwt.algorithm": {"FOREBAY_JWT_KEY_SET_FILE": "x"},
        "jwt.secret": {"FOREBAY_JWT_ALGORITHM": "HS256"},
        "jwt.secret_file": {"FOREBAY_JWT_ALGORITHM": "HS256"},
        "jwt.key_set_file": {"FOREBAY_JWT_ALGORITHM": "EdDSA"},
    }
    environ = pairs.get(path, {})
    by_file = load_settings(file=tmp_path / "forebay.yaml", environ=environ).settings
    by_variable = load_settings(environ={**environ, setting.variable: said}).settings
    assert by_file == by_variable != load_settings().settings


def another_value(path: str) -> Any:
    """A value that isn't the default."""
    setting = SETTINGS[path]
    others: dict[str, Callable[[], Any]] = {
        "switch": lambda: not setting.default,
        "list": lambda: (*setting.default, "convoy"),
        "mapping": lambda: {"org.example.A": "one:1"},
        "choice": lambda: next(choice for choice in setting.choices if choice != setting.default),
    }
    if setting.kind in others:
        return others[setting.kind]()
    if setting.kind == "text":
        special = {
            "up.worker": "shop.worker:worker",
            "up.flows_metrics": "h:2",
            "up.worker_metrics": "h:3",
            "up.snapshot_metrics": "h:4",
            "store.url": "memory://",
            "store.warm": "valkey://h",
            "metrics.queue_snapshot.url": "valkey://h",
            "server.listen": "h:1",
            "queen.encryption_key": "0f" * 32,
        }
        return special.get(path, "=other" if ".labels." in path else "other")
    if setting.default is None:
        return max(5, int(setting.least or 0))
    return {"limits.message_bytes_max": 1 << 19, "limits.headers_bytes_max": 1 << 12}.get(
        path, setting.default - 1 if path.startswith("limits.") else setting.default + 1
    )


def test_flags_set_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_CONFIG", str(tmp_path / "other.yaml"))
    (tmp_path / "other.yaml").write_text("logging: {level: debug}")
    parser = argparse.ArgumentParser()
    declare_settings(parser)
    loaded = load_from(parser.parse_args(["--listen", "h:1", "--insecure", "--store", "memory://"]))
    assert loaded.settings.server.listen == "h:1"
    assert loaded.settings.server.insecure
    assert loaded.settings.store.address == "memory://"
    assert loaded.settings.logging.level == "debug"
    (tmp_path / "mine.yaml").write_text("logging: {level: error}")
    loaded = load_from(parser.parse_args(["--config", str(tmp_path / "mine.yaml")]))
    assert loaded.settings.logging.level == "error"


def test_every_flag_is_of_a_setting() -> None:
    assert [flag.name for flag in FLAGS if flag.path not in SETTINGS] == []


def test_the_log_and_the_keys_are_in_the_data_folder_unless_said_otherwise() -> None:
    made = Settings(store=StoreSection(data="/srv/data"))
    assert made.store.address == "sqlite:////srv/data/forebay.db"
    assert str(made.keys_file) == "/srv/data/keys.json"
    assert Settings().store.address == "sqlite:///forebay-data/forebay.db"


def test_files_that_settings_name_must_be_readable(tmp_path: Path) -> None:
    environ = {
        "FOREBAY_SERVER_TLS_CERTIFICATE": str(tmp_path / "missing.pem"),
        "FOREBAY_SERVER_TLS_KEY": str(tmp_path),
        "FOREBAY_KEYS_FILE": str(tmp_path / "keys.json"),
    }
    faults = file_faults(load_settings(environ=environ))
    assert [fault.key for fault in faults] == ["server.tls_certificate", "server.tls_key", "keys.file"]
    assert faults[0].source == "FOREBAY_SERVER_TLS_CERTIFICATE"
    (tmp_path / "keys.json").write_text("{")
    assert "keys.json:1" in file_faults(load_settings(environ=environ))[2].message
    assert file_faults(load_settings(environ={"FOREBAY_STORE_DATA": str(tmp_path / "new")})) == []


PASSWORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).map(
    lambda text: f"Hunter2{text}Hunter2"
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    password=PASSWORDS,
    scheme=st.sampled_from(["postgresql://", "postgresql//", "valkey://", ""]),
    raw=st.booleans(),
)
def test_no_secret_is_in_what_is_shown_or_said(file: Path, password: str, scheme: str, raw: bool) -> None:  # noqa: FBT001 - drawn
    address = f"{scheme}me:{password if raw else quote(password, safe='')}@host/db"
    for path in (
        "store.url", "store.warm", "metrics.queue_snapshot.url", "server.listen",
        "server.limits.body_bytes_max", "keys.file",
    ):  # fmt: skip
        section, _, name = path.partition(".")
        documents = [
            yaml.safe_dump(
                {section: {name: address} if "." not in name else {"limits": {"body_bytes_max": address}}}
            ),
            yaml.safe_dump({section: {f"{name}x": address, address: 1}}),
            f"{section}: {{{name}: {address}",
            address,
        ]
        for document in documents:
            assert_no_secret(read(file, document.encode(errors="replace")))
        environ = {SETTINGS[path].variable: address.replace("\0", "")}
        assert_no_secret(read_settings(environ=environ))


SECRETS = [path for path, setting in SETTINGS.items() if setting.is_secret]


def test_what_is_secret_is_known_as_such() -> None:
    assert SECRETS == ["jwt.secret", "queen.encryption_key"]


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("secret", ["Hunter2", "Hunter2\nHunter2" * 9, "Hunter2\0Hunter2", "a@b:Hunter2"])
def test_a_secret_is_neither_shown_nor_quoted(file: Path, path: str, secret: str) -> None:
    section, _, name = path.partition(".")
    algorithm = {"FOREBAY_JWT_ALGORITHM": "HS256"}
    assert_no_secret(read(file, yaml.safe_dump({section: {name: secret}}), algorithm))
    assert_no_secret(read(file, yaml.safe_dump({section: {name: [secret]}}), algorithm))
    assert_no_secret(read_settings(environ={SETTINGS[path].variable: secret, **algorithm}))
    assert_no_secret(read_settings(environ={"QUEEN_ENCRYPTION_KEY": secret}))
    assert_no_secret(read_settings(environ={"FOREBAY_JWT_SECRET": secret}))


def test_secrets_in_effect_are_shown_as_set_but_hidden() -> None:
    environ = {
        "FOREBAY_JWT_ALGORITHM": "HS256",
        "FOREBAY_JWT_SECRET": "Hunter2",
        "QUEEN_ENCRYPTION_KEY": "abcdef01" * 8,
    }
    loaded = load_settings(environ=environ)
    assert loaded.settings.queen.encryption_key == "abcdef01" * 8
    rows = {row.key: row for row in loaded.rows()}
    for path in SECRETS:
        assert rows[path].value == rows[path].text == "***"
        assert rows[path].source in environ
    assert rows["jwt.algorithm"].value == "HS256"
    assert rows["jwt.secret_file"].value is None
    (fault,) = file_faults(loaded)
    assert (fault.key, fault.source) == ("jwt.secret", "FOREBAY_JWT_SECRET")
    assert "7 bytes, fewer than 32" in fault.message


def test_files_of_secrets_must_be_right(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("Hunter2")
    environ = {
        "FOREBAY_JWT_ALGORITHM": "RS256",
        "FOREBAY_JWT_KEY_SET_FILE": str(tmp_path / "keys"),
        "FOREBAY_QUEEN_ENCRYPTION_KEYS_FILE": str(tmp_path / "keys"),
    }
    faults = file_faults(load_settings(environ=environ))
    assert [fault.key for fault in faults] == ["jwt.key_set_file", "queen.encryption_keys_file"]
    assert "keys:1" in faults[1].message
    assert "Hunter2" not in "".join(map(str, faults))


def assert_no_secret(reading: Reading) -> None:
    said = "\n".join(map(str, reading.faults))
    if reading.loaded is not None:
        said += msgspec.json.encode(reading.loaded.rows()).decode()
    assert "Hunter2" not in said
