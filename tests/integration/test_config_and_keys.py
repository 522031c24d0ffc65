"""`forebay config` and `forebay keys`, as a user types them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.api.keyring import KeyRing
from forebay.model import Unauthorized


def forebay(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay.app.cli", *arguments]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FOREBAY_")}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_key_is_printed_once_and_then_only_known_by_its_id(tmp_path: Path) -> None:
    made = forebay("keys", "create", "--name", "loader", "--queue", "in/", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (text,) = made.stdout.split()
    key = KeyRing(tmp_path / "forebay-data" / "keys.json").verify(f"Bearer {text}")
    assert (key.name, key.scopes, key.queues) == ("loader", ("read", "push", "take"), ("in/",))
    secret = text.rpartition("_")[2]
    for arguments in (["keys", "list"], ["keys", "list", "--json"], ["config", "show"]):
        shown = forebay(*arguments, cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert secret not in shown.stdout + shown.stderr
        assert key.digest not in shown.stdout
    assert secret not in (tmp_path / "forebay-data" / "keys.json").read_text()
    (row,) = json.loads(forebay("keys", "list", "--json", cwd=tmp_path).stdout)
    assert (row["id"], row["name"], row["state"]) == (key.id, "loader", "valid")
    assert key.id in forebay("keys", "list", cwd=tmp_path).stdout


def test_a_revoked_key_is_refused_and_stays_in_the_list(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "k.json"
    options = ["--scope", "admin", "--rate", "5", "--burst", "9", "--expires", "30d", "--keys", str(file)]
    made = json.loads(forebay("keys", "create", "--json", "--name", "me", *options, cwd=tmp_path).stdout)
    assert (made["rate_per_second"], made["burst"]) == (5, 9)
    assert made["expires_at"] - made["created_at"] == 30 * 86_400 * 1_000_000
    assert forebay("keys", "revoke", made["id"], "--keys", str(file), cwd=tmp_path).returncode == 0
    with pytest.raises(Unauthorized):
        KeyRing(file).verify(f"Bearer {made['key']}")
    (row,) = json.loads(forebay("keys", "list", "--json", "--keys", str(file), cwd=tmp_path).stdout)
    assert row["state"] == "revoked"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--name", "x", "--scope", "pull"], ["no scope 'pull'", "read, push, take, admin"]),
        (["create", "--name", "x", "--scope", "push", "--expires", "soon"], ["--expires: 'soon'", "30s"]),
        (["create", "--name", "x", "--scope", "push", "--burst", "5"], ["--burst", "--rate"]),
        (["create", "--name", " ", "--scope", "push"], ["name of the key is empty"]),
        (["revoke", "abc"], ["no file of keys", "--keys"]),
        (["create", "--name", "x", "--scope", "push", "--keys", "taken/k.json"], ["can't be written"]),
    ],
)
def test_bad_arguments_get_a_clear_error_and_make_no_file(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    run = forebay("keys", *arguments, cwd=tmp_path)
    assert run.returncode == 3
    assert run.stderr.startswith("forebay: ")
    for word in words:
        assert word in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_the_settings_in_effect_are_shown_with_their_sources_and_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("store:\n  url: postgresql://me:hunter2@host/db\n")
    arguments = ["config", "show", "--config", "f.yaml", "--log-level", "debug"]
    table = forebay(*arguments, cwd=tmp_path, FOREBAY_SERVER_LISTEN="localhost:1")
    assert table.returncode == 0, table.stderr
    for words in ("postgresql://me:***@host/db", "f.yaml:2", "FOREBAY_SERVER_LISTEN", "--log-level", "32Mi"):
        assert words in table.stdout
    rows = json.loads(forebay(*arguments, "--json", cwd=tmp_path).stdout)
    by_key = {row["key"]: row for row in rows}
    assert by_key["store.url"] == {
        "key": "store.url",
        "value": "postgresql://me:***@host/db",
        "source": "f.yaml:2",
    }
    assert by_key["server.limits.body_bytes_max"]["value"] == 32 << 20


def test_a_check_says_everything_that_is_wrong_and_ends_with_status_3(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("server:\n  lisen: x\n  limits:\n    body_bytes_max: 3X\n")
    run = forebay("config", "check", "bad.yaml", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, "")
    assert "server.lisen (bad.yaml:2)" in run.stderr
    assert "server.limits.body_bytes_max (bad.yaml:4)" in run.stderr
    again = forebay("config", "check", "--json", cwd=tmp_path, FOREBAY_CONFIG="bad.yaml")
    assert again.returncode == 3
    assert [fault["key"] for fault in json.loads(again.stdout)["faults"]] == [
        "server.lisen",
        "server.limits.body_bytes_max",
    ]


def test_a_check_of_what_is_right_ends_with_status_0(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("server:\n  listen: 127.0.0.1:7000\n")
    assert forebay("config", "check", "good.yaml", cwd=tmp_path).returncode == 0
    shown = forebay("config", "check", "good.yaml", "--json", cwd=tmp_path)
    assert (shown.returncode, json.loads(shown.stdout)) == (0, {"faults": []})


def test_a_check_looks_at_the_files_that_settings_name(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("keys: {file: missing.json}\n")
    run = forebay("config", "check", "f.yaml", cwd=tmp_path)
    assert run.returncode == 3
    assert "keys.file (f.yaml:1): missing.json isn't there" in run.stderr
