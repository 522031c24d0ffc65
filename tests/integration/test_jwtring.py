"""A signature is checked once; the key set is read again when it changes; damage locks nobody out."""

from pathlib import Path
from typing import Any, Final

import pytest

from forebay.api.gate import Gate
from forebay.api.jwt import ring as module
from forebay.api.jwt.ring import JwtRing
from forebay.api.jwt.settings import JwtSettings
from forebay.api.jwt.tokens import recognised_caller
from forebay.api.keyfile import change_keys, with_key
from forebay.api.keyring import KeyRing
from forebay.api.keys import make_key
from forebay.model import Forbidden, ManualClock, Misconfigured, Unauthorized
from tests.tokens import SECRET, Signer, ed25519, sharing, write_key_set

NOW: Final = 1_000
CLAIMS: Final = {"sub": "alice", "role": "read-write", "exp": NOW + 60}


class Seconds:
    """A clock of seconds that moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Ringed:
    """A ring on a key set, with its clocks."""

    def __init__(self, path: Path, *signers: Signer) -> None:
        self.path = write_key_set(path / "set.json", *signers)
        self.clock = ManualClock(NOW * 1_000_000)
        self.seconds = Seconds()
        settings = JwtSettings(algorithm="EdDSA", key_set_file=str(self.path), leeway_seconds=0.0)
        self.ring = JwtRing(settings, self.clock, elapsed=self.seconds)

    def reason(self, token: str) -> str:
        with pytest.raises(Unauthorized) as caught:
            self.ring.verify(token)
        return caught.value.reason


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens whose signatures are checked from now on."""
    checked: list[str] = []
    real = recognised_caller

    def recognise(token: str, *rest: Any) -> Any:
        checked.append(token)
        return real(token, *rest)

    monkeypatch.setattr(module, "recognised_caller", recognise)
    return checked


def test_a_signature_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = ed25519()
    ringed, checked = Ringed(tmp_path, signer), counted(monkeypatch)
    token = signer.token(CLAIMS)
    assert {ringed.ring.verify(token).subject for _ in range(10)} == {"alice"}
    assert checked == [token]
    assert token not in str(vars(ringed.ring))


def test_what_is_remembered_expires(tmp_path: Path) -> None:
    signer = ed25519()
    ringed = Ringed(tmp_path, signer)
    token = signer.token(CLAIMS)
    ringed.ring.verify(token)
    ringed.clock.advance(seconds=59.999)
    ringed.ring.verify(token)
    ringed.clock.advance(seconds=0.001)
    assert ringed.reason(token) == "jwt expired"
    assert ringed.ring.refused["jwt expired"] == 1
    assert ringed.ring._seen == {}


def test_what_is_refused_is_never_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ringed, checked = Ringed(tmp_path, ed25519()), counted(monkeypatch)
    token = ed25519().token(CLAIMS)
    assert [ringed.reason(token) for _ in range(3)] == ["jwt signature"] * 3
    assert len(checked) == 3
    assert ringed.ring._seen == {}


def test_only_so_many_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEEN_MAX", 5)
    signer = ed25519()
    ringed = Ringed(tmp_path, signer)
    for number in range(23):
        ringed.ring.verify(signer.token({**CLAIMS, "jti": number}))
        assert len(ringed.ring._seen) <= 5


def test_a_key_comes_into_the_set_and_goes_within_a_second(tmp_path: Path) -> None:
    old, new = ed25519("old"), ed25519("new")
    ringed = Ringed(tmp_path, old)
    assert ringed.ring.verify(old.token(CLAIMS)).subject == "alice"
    assert ringed.reason(new.token(CLAIMS)) == "jwt unknown key"
    write_key_set(ringed.path, old, new)
    ringed.seconds.now += 1
    assert ringed.ring.verify(new.token(CLAIMS)).subject == "alice"
    token = old.token(CLAIMS)
    assert ringed.ring.verify(token).subject == "alice"
    write_key_set(ringed.path, new)
    ringed.seconds.now += 1
    assert ringed.reason(token) == "jwt unknown key"


def test_a_key_that_took_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    old, new = ed25519("same"), ed25519("same")
    ringed = Ringed(tmp_path, old)
    token = old.token(CLAIMS)
    ringed.ring.verify(token)
    write_key_set(ringed.path, new)
    ringed.seconds.now += 1
    assert ringed.reason(token) == "jwt signature"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"keys": []}', None])
def test_a_damaged_set_is_reported_and_the_known_keys_go_on(tmp_path: Path, damage: bytes | None) -> None:
    signer = ed25519()
    ringed = Ringed(tmp_path, signer)
    if damage is None:
        ringed.path.unlink()
    else:
        ringed.path.write_bytes(damage)
    ringed.seconds.now += 1
    assert ringed.ring.verify(signer.token(CLAIMS)).subject == "alice"
    assert "set.json" in str(ringed.ring.problem)
    write_key_set(ringed.path, signer)
    ringed.seconds.now += 1
    ringed.ring.look()
    assert ringed.ring.problem is None


def test_a_server_does_not_start_without_its_key_set(tmp_path: Path) -> None:
    settings = JwtSettings(algorithm="EdDSA", key_set_file=str(tmp_path / "missing"))
    with pytest.raises(Misconfigured, match="can't be read"):
        JwtRing(settings)


def test_a_secret_in_a_file_is_changed_while_the_server_runs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    seconds = Seconds()
    settings = JwtSettings(algorithm="HS256", secret_file=str(tmp_path / "secret"))
    ring = JwtRing(settings, ManualClock(NOW * 1_000_000), elapsed=seconds)
    ring.verify(sharing().token(CLAIMS))
    (tmp_path / "secret").write_text(SECRET[::-1] + "!")
    seconds.now += 1
    with pytest.raises(Unauthorized):
        ring.verify(sharing().token(CLAIMS))
    assert ring.verify(sharing(SECRET[::-1] + "!").token(CLAIMS)).subject == "alice"


def test_keys_and_tokens_are_let_in_side_by_side_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    clock = ManualClock(NOW * 1_000_000)
    tokens = JwtRing(JwtSettings(algorithm="HS256", secret=SECRET), clock)
    seconds = Seconds()
    gate = Gate(KeyRing(path, clock, required=True, elapsed=seconds), tokens=tokens)
    key, text = make_key("loader", ["push"], now=0)
    token = f"Bearer {sharing().token(CLAIMS)}"
    assert gate.admit(token, "push").subject == "alice"
    for header in (None, "", "Bearer", f"Bearer {text}", "Basic a.b.c", "Bearer a.b", f"{token}.x"):
        with pytest.raises(Unauthorized, match="no valid API key"):
            gate.admit(header, "read")
    change_keys(path, lambda keys: with_key(keys, key, 0))
    seconds.now += 1
    admitted = gate.admit(f"Bearer {text}", "push")
    assert (admitted, admitted.subject) == (key, None)
    assert gate.admit(token, "take").subject == "alice"
    with pytest.raises(Forbidden, match="the JWT of 'alice' lacks the scope admin"):
        gate.admit(token, "admin")
    assert gate.problems() == {}
    assert gate.refused["missing"] == 2
    assert gate.refused["jwt expired"] == 0
