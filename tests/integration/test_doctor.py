"""`forebay doctor` on real servers: what is well, what isn't, and what it says helps."""

import json
from pathlib import Path
from typing import Any, Literal

import asyncpg
import pytest

from forebay import open_log
from tests.integration.test_commands import forebay
from tests.servers import TarantoolServer, ValkeyServer
from tests.tokens import SECRET, ed25519, write_key_set


def check(*arguments: str, cwd: Path, status: int) -> dict[str, dict[str, Any]]:
    """The findings by subject."""
    run = forebay("doctor", *arguments, "--json", cwd=cwd)
    assert run.returncode == status, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found["ok"] == (status == 0)
    return {finding["subject"]: finding for finding in found["findings"]}


def test_a_new_folder_is_well_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    found = check("--store", f"sqlite:///{tmp_path / 'new.db'}", cwd=tmp_path, status=0)
    assert {finding["level"] for finding in found.values()} == {"ok"}
    assert {"python", "packages", "configuration", "data folder", "disk", "fsync", "database"} <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_settings_with_which_no_server_would_start_fail(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("server: {listen: 127.0.0.1:0}\n")
    (tmp_path / "bad.yaml").write_text("server: {lisen: 127.0.0.1:0}\n")
    found = check("--store", "memory://", "--config", "good.yaml", cwd=tmp_path, status=0)
    assert found["settings"]["level"] == "ok"
    found = check("--store", "memory://", "--config", "bad.yaml", cwd=tmp_path, status=1)
    assert "server.lisen" in found["settings"]["text"]
    assert found["settings"]["help"] == "forebay config check bad.yaml"


async def test_a_log_says_its_schema_and_another_file_fails(tmp_path: Path) -> None:
    async with open_log(f"sqlite:///{tmp_path / 'log.db'}"):
        pass
    found = check("--store", f"sqlite:///{tmp_path / 'log.db'}", cwd=tmp_path, status=0)
    assert "up to date" in found["schema"]["text"]
    (tmp_path / "other.db").write_bytes(b"no database" * 100)
    found = check("--store", f"sqlite:///{tmp_path / 'other.db'}", cwd=tmp_path, status=1)
    assert found["database"]["level"] == "failure"
    assert found["database"]["help"]


@pytest.mark.parametrize("isolation", ["repeatable_read", "read_committed"])
async def test_postgresql_says_version_clock_schema_and_who_holds_an_old_snapshot(
    tmp_path: Path, postgres_dsn: str, isolation: Literal["repeatable_read", "read_committed"]
) -> None:
    found = check("--store", postgres_dsn, cwd=tmp_path, status=0)
    assert found["schema"]["text"] == "made on first use"
    async with open_log(postgres_dsn):
        pass
    connection = await asyncpg.connect(postgres_dsn, server_settings={"application_name": "forgotten"})
    transaction = connection.transaction(isolation=isolation)
    await transaction.start()
    await connection.execute("SELECT 1")
    pid = connection.get_server_pid()
    found = check("--store", postgres_dsn, "--snapshot-age", "0s", cwd=tmp_path, status=0)
    assert "PostgreSQL" in found["database"]["text"]
    assert found["database clock"]["level"] == "ok"
    assert "up to date" in found["schema"]["text"]
    assert found["full_page_writes"]["level"] == "ok"
    assert found["old snapshot"]["level"] == "warning"
    assert "forgotten" in found["old snapshot"]["text"]
    assert "idle in transaction" in found["old snapshot"]["text"]
    assert found["old snapshot"]["help"] == f"SELECT pg_terminate_backend({pid});"
    found = check("--store", postgres_dsn, "--snapshot-age", "1h", cwd=tmp_path, status=0)
    assert found["old snapshot"]["level"] == "ok"
    await transaction.rollback()
    await connection.close()


async def test_a_schema_of_a_newer_forebay_fails(tmp_path: Path, postgres_dsn: str) -> None:
    async with open_log(postgres_dsn):
        pass
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("INSERT INTO forebay.schema_version (number, name) VALUES (999, 'later')")
    await connection.close()
    found = check("--store", postgres_dsn, cwd=tmp_path, status=1)
    assert "999" in found["schema"]["text"]


async def test_tarantool_says_version_schema_memory_and_settings_that_lose_data(
    tmp_path: Path, tarantool: TarantoolServer
) -> None:
    found = check("--store", tarantool.url, cwd=tmp_path, status=0)
    assert found["schema"]["text"] == "made on first use"
    async with open_log(tarantool.url):
        pass
    found = check("--store", tarantool.url, cwd=tmp_path, status=0)
    assert found["database"]["text"].startswith("Tarantool ")
    assert "up to date" in found["schema"]["text"]
    assert {found[subject]["level"] for subject in ("database clock", "wal_mode", "memory")} == {"ok"}
    with TarantoolServer(settings={"wal_mode": "'write'", "memtx_max_tuple_size": "1048576"}) as other:
        found = check("--store", other.url, cwd=tmp_path, status=1)
    assert found["wal_mode"]["level"] == found["memtx_max_tuple_size"]["level"] == "failure"


def test_valkey_says_version_and_policy(tmp_path: Path, valkey: ValkeyServer) -> None:
    found = check("--store", "memory://", "--warm", valkey.url, cwd=tmp_path, status=0)
    assert found["valkey"]["text"].startswith("Valkey ")
    assert found["eviction"]["text"] == "noeviction"
    valkey.stop()
    found = check("--store", f"memory://?warm={valkey.url}", cwd=tmp_path, status=1)
    assert found["valkey"]["level"] == "failure"


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (["--store", "postgresql://nobody@127.0.0.1:1/x"], "database"),
        (["--store", "postgresql://nobody@127.0.0.1:x/x"], "database"),
        (["--store", "tarantool://127.0.0.1:1"], "database"),
        (["--store", "tarantool://127.0.0.1:x"], "database"),
        (["--store", "http://127.0.0.1:1"], "server"),
        (["--store", "mysql://x"], "configuration"),
        (["--store", "sqlite://x"], "configuration"),
        (["--store", "memory://", "--warm", "valkey://127.0.0.1:x"], "valkey"),
        (["--store", "memory://", "--data", "no/such/folder"], "data folder"),
    ],
)
def test_what_is_not_there_fails_with_what_helps(tmp_path: Path, arguments: list[str], subject: str) -> None:
    found = check(*arguments, cwd=tmp_path, status=1)
    assert found[subject]["level"] == "failure"
    assert found[subject]["help"]


def test_people_see_a_line_for_each_and_what_to_try(tmp_path: Path) -> None:
    run = forebay("doctor", "--store", "http://127.0.0.1:1", cwd=tmp_path)
    assert run.returncode == 1
    assert "ok      python: " in run.stdout
    assert "failure server: no server answers" in run.stdout
    assert "try: forebay serve" in run.stdout


def test_what_tokens_and_payloads_need_is_said_without_secrets(tmp_path: Path) -> None:
    secret, keys = tmp_path / "secret", tmp_path / "keys"
    secret.write_text(SECRET)
    keys.write_text("0123456789abcdef" * 4)
    keys.chmod(0o600)
    secret.chmod(0o644)
    jwt: dict[str, Any] = {"algorithm": "HS256", "secret_file": str(secret)}
    config = tmp_path / "forebay.yaml"

    def found(status: int) -> dict[str, dict[str, Any]]:
        config.write_text(json.dumps({"jwt": jwt, "queen": {"encryption_keys_file": str(keys)}}))
        findings = check("--store", "memory://", "--config", str(config), cwd=tmp_path, status=status)
        assert SECRET not in str(findings)
        assert "0123456789abcdef" not in str(findings)
        return findings

    well = found(0)
    assert "HS256" in well["jwt"]["text"]
    assert well["jwt secret"]["help"] == f"chmod o= {secret}"
    assert "1 keys" in well["encryption"]["text"]
    assert "encryption file" not in well
    secret.write_text(SECRET[:31])
    assert "31 bytes, fewer than 32" in found(1)["jwt"]["text"]
    jwt = {"algorithm": "EdDSA", "key_set_file": str(write_key_set(tmp_path / "set.json", ed25519()))}
    assert found(0)["jwt audience"]["level"] == "warning"
    (tmp_path / "set.json").write_text("{")
    assert found(1)["jwt"]["level"] == "failure"
