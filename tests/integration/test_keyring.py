"""Keys in a file: written whole, read again when they change, kept when the file is damaged."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.api import keyfile
from forebay.api.keyfile import change_keys, read_keys, with_key
from forebay.api.keyring import KeyRing
from forebay.api.keys import ANYONE, Key, make_key
from forebay.model import ManualClock, Misconfigured, Rejected, Unauthorized, Unavailable


class Seconds:
    """A clock of seconds that moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def add(path: Path, *, expires_at: int | None = None) -> tuple[Key, str]:
    key, text = make_key("loader", ["push"], now=5, expires_at=expires_at)
    change_keys(path, lambda keys: with_key(keys, key, 5))
    return key, f"Bearer {text}"


def reason(ring: KeyRing, header: str | None) -> str:
    with pytest.raises(Unauthorized) as caught:
        ring.verify(header)
    return caught.value.reason


def test_what_is_written_is_read_and_is_for_its_owner_only(path: Path) -> None:
    first, _ = add(path)
    second, _ = add(path, expires_at=100)
    found = read_keys(path)
    assert found is not None
    assert found[0] == [first, second]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_keys_made_at_the_same_time_are_all_kept(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: add(path)[0].id, range(24)))
    found = read_keys(path)
    assert found is not None
    assert sorted(key.id for key in found[0]) == sorted(made)


def test_a_lock_that_is_never_given_up_is_an_error_not_a_hang(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(path)
    monkeypatch.setattr(keyfile, "_LOCK_SECONDS", 0.05)
    with (
        keyfile._locked(path.with_name("keys.json.lock")),
        pytest.raises(Unavailable, match="another process"),
    ):
        add(path)


def test_a_crash_before_the_rename_leaves_the_old_keys(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = add(path)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(Misconfigured, match="No space left"):
            add(path)
    second, _ = add(path)
    found = read_keys(path)
    assert found is not None
    assert found[0] == [first, second]


def test_without_a_file_anyone_may_and_with_the_first_key_nobody_else(path: Path) -> None:
    seconds = Seconds()
    ring = KeyRing(path, ManualClock(5), elapsed=seconds)
    assert ring.verify(None) is ANYONE
    key, header = add(path)
    assert ring.verify(None) is ANYONE
    seconds.now += 1
    assert reason(ring, None) == "missing"
    assert ring.verify(header) == key


def test_a_file_without_keys_lets_nobody_in(path: Path) -> None:
    change_keys(path, lambda _: [])
    ring = KeyRing(path)
    assert ring.guarded
    assert reason(ring, None) == "missing"


def test_a_revoked_key_is_refused_within_a_second_also_when_it_was_just_used(path: Path) -> None:
    seconds = Seconds()
    key, header = add(path)
    ring = KeyRing(path, ManualClock(5), elapsed=seconds)
    assert ring.verify(header) == ring.verify(header) == key
    change_keys(path, lambda keys: keyfile.revoke(keys, key.id, 7))
    seconds.now += 1
    assert reason(ring, header) == "revoked"


def test_a_key_expires_also_when_it_was_just_used(path: Path) -> None:
    clock = ManualClock(5)
    key, header = add(path, expires_at=1_000_000)
    ring = KeyRing(path, clock, elapsed=Seconds())
    assert ring.verify(header) == ring.verify(header) == key
    clock.set(1_000_000)
    assert reason(ring, header) == "expired"


def test_the_file_is_looked_at_once_a_second_at_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = Seconds()
    _, header = add(path)
    ring = KeyRing(path, ManualClock(5), elapsed=seconds)
    looks = 0
    real = Path.stat

    def counted(file: Path) -> os.stat_result:
        nonlocal looks
        looks += 1
        return real(file)

    monkeypatch.setattr(Path, "stat", counted)
    for tenth in range(1, 31):
        seconds.now = tenth / 10
        ring.verify(header)
    assert looks == 3


def test_refusals_are_counted_apart(path: Path) -> None:
    key, header = add(path)
    ring = KeyRing(path, ManualClock(5), elapsed=Seconds())
    wrong = header[:-1] + ("a" if header[-1] != "a" else "b")
    for bad in (None, None, "Bearer x", wrong, f"Bearer fbk_{'x' * 8}_{'y' * 43}"):
        reason(ring, bad)
    assert ring.refused == {"missing": 2, "malformed": 1, "unknown": 2, "revoked": 0, "expired": 0}
    assert ring.verify(header) == key


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 2, "keys": []}', b"\xff\xfe"])
def test_a_damaged_file_is_reported_and_the_known_keys_go_on(path: Path, damage: bytes) -> None:
    seconds = Seconds()
    key, header = add(path)
    whole = path.read_bytes()
    ring = KeyRing(path, ManualClock(5), elapsed=seconds)
    path.write_bytes(damage)
    seconds.now += 1
    assert ring.verify(header) == key
    assert str(path) in str(ring.problem)
    path.write_bytes(whole)
    seconds.now += 1
    assert ring.verify(header) == key
    assert ring.problem is None


def test_a_file_that_is_gone_leaves_the_server_guarded(path: Path) -> None:
    seconds = Seconds()
    key, header = add(path)
    ring = KeyRing(path, ManualClock(5), elapsed=seconds)
    aside = path.rename(path.with_name("aside"))
    seconds.now += 1
    assert reason(ring, None) == "missing"
    assert ring.verify(header) == key
    assert "is gone" in str(ring.problem)
    aside.rename(path)
    seconds.now += 1
    assert ring.verify(header) == key
    assert ring.problem is None


def test_a_server_does_not_start_with_a_damaged_file_and_says_the_line(path: Path) -> None:
    for _ in range(3):
        add(path)
    lines = path.read_text().splitlines()
    for number, (old, new) in {3: ('"push"', '"pull"'), 4: ('"scopes"', '"scope"'), 2: (":", "")}.items():
        broken = [line.replace(old, new, 1) if at == number else line for at, line in enumerate(lines, 1)]
        path.write_text("\n".join(broken))
        with pytest.raises(Misconfigured, match=rf"keys\.json:{number}: .*damaged"):
            KeyRing(path)


def test_a_change_of_a_damaged_file_changes_nothing(path: Path) -> None:
    add(path)
    path.write_text("{")
    with pytest.raises(Misconfigured, match="damaged"):
        add(path)
    assert path.read_text() == "{"


def test_two_keys_of_one_id_are_damage(path: Path) -> None:
    key, _ = add(path)
    change_keys(path, lambda _: [key, key])
    with pytest.raises(Misconfigured, match="same id"):
        KeyRing(path)


def test_keys_that_are_no_longer_valid_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyfile, "KEYS_MAX", 3)
    kept = [make_key(str(n), ["push"], now=0, expires_at=10 if n == 1 else None)[0] for n in range(3)]
    new, newer = make_key("new", ["push"], now=20)[0], make_key("newer", ["push"], now=20)[0]
    assert with_key(kept, new, 20) == [kept[0], kept[2], new]
    with pytest.raises(Rejected, match="3 valid keys"):
        with_key([kept[0], kept[2], new], newer, 20)


def test_revoking_keeps_the_first_time_and_needs_a_known_id() -> None:
    key, _ = make_key("loader", ["push"], now=0)
    (revoked,) = keyfile.revoke([key], key.id, 5)
    assert keyfile.revoke([revoked], key.id, 9) == [revoked]
    with pytest.raises(Rejected, match="no key with the id"):
        keyfile.revoke([key], "nothere0", 5)
