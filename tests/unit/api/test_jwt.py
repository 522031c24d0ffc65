"""A token is taken if it is signed as the server is told and says what it must; a refusal says why."""

import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.jwt.settings import JwtSettings
from forebay.api.jwt.signers import read_signers
from forebay.api.jwt.tokens import REASONS, Caller, recognised_caller, token_in
from forebay.api.keys import Key, make_key
from forebay.model import Forbidden, Misconfigured, Unauthorized
from tests.tokens import SECRET, Signer, ed25519, part, rsa, sharing, write_key_set

NOW: Final = 1_800_000_000
"""Seconds; the server's clock is in microseconds."""
CLAIMS: Final = {"sub": "alice", "role": "read-write", "exp": NOW + 60}


def told(**settings: Any) -> JwtSettings:
    return JwtSettings(**{"algorithm": "HS256", "secret": SECRET, "leeway_seconds": 0.0, **settings})


def take(token: str, settings: JwtSettings | None = None, *, now: float = NOW) -> Caller:
    settings = settings or told()
    return recognised_caller(token, read_signers(settings)[0], settings, round(now * 1e6))


def why(token: str, settings: JwtSettings | None = None, *, now: float = NOW) -> str:
    """The reason against a token. What is said is for its owner, but has nothing of it."""
    with pytest.raises(Unauthorized) as caught:
        take(token, settings, now=now)
    error = caught.value
    assert "JWT" in error.message
    assert error.hint
    assert error.reason in REASONS
    for piece in (*token.split("."), "alice", "mallory"):
        assert len(piece) < 4 or piece not in str(error)
    return error.reason


def public(path: Path, *signers: Signer, algorithm: str = "RS256") -> JwtSettings:
    key_set = write_key_set(path / "keys.json", *signers)
    return told(algorithm=algorithm, secret=None, key_set_file=str(key_set))


def test_whoever_has_the_secret_is_believed() -> None:
    caller = take(sharing().token(CLAIMS))
    assert caller.subject == caller.name == "alice"
    assert caller.scopes == ("read", "push", "take")
    assert caller.queues == ()
    assert caller.expires_at == (NOW + 60) * 1_000_000


@pytest.mark.parametrize("algorithm", ["RS256", "EdDSA"])
def test_whoever_has_a_key_of_the_set_is_believed(tmp_path: Path, algorithm: str) -> None:
    signers = (rsa("a"), rsa("b"), ed25519("c"), ed25519("d"))
    settings = public(tmp_path, *signers, algorithm=algorithm)
    for signer in signers:
        if signer.algorithm == algorithm:
            assert take(signer.token(CLAIMS), settings).subject == "alice"
        else:
            assert why(signer.token(CLAIMS), settings) == "jwt algorithm"


def test_the_example_of_rfc_7519_is_understood(tmp_path: Path) -> None:
    secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
    (tmp_path / "secret").write_bytes(urlsafe_b64decode(secret + "=="))
    settings = told(secret=None, secret_file=str(tmp_path / "secret"), issuer="joe")
    token = (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
        ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )
    assert take(token, settings, now=1_300_819_379).expires_at == 1_300_819_380_000_000
    assert why(token, settings, now=1_300_819_380) == "jwt expired"


def test_the_signature_of_rfc_8037_is_right(tmp_path: Path) -> None:
    x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": "rfc", "x": x}
    signer = Signer("EdDSA", bytes, jwk)
    signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    signature = urlsafe_b64decode(
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg=="
    )
    signers, _ = read_signers(public(tmp_path, signer, algorithm="EdDSA"))
    assert signers.keys["rfc"](signed, signature)
    assert not signers.keys["rfc"](signed + b"x", signature)


# What is refused


@pytest.mark.parametrize("alg", ["none", "None", "HS384", "RS256", "hs256", ""])
def test_another_algorithm_is_refused_also_with_a_right_signature(alg: str) -> None:
    assert why(sharing().token(CLAIMS, alg=alg)) == "jwt algorithm"


@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_a_token_without_a_signature_is_refused(signature: str) -> None:
    unsigned = f"{part({'alg': 'none'})}.{part(CLAIMS)}.{signature}"
    assert why(unsigned) == "jwt algorithm"
    assert why(f"{part({'alg': 'HS256'})}.{part(CLAIMS)}.{signature}") == "jwt signature"


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    signer = rsa()
    assert signer.jwk is not None
    n, e = (int.from_bytes(urlsafe_b64decode(signer.jwk[name] + "==")) for name in ("n", "e"))
    key = RSAPublicNumbers(e, n).public_key()
    for pem in (PublicFormat.PKCS1, PublicFormat.SubjectPublicKeyInfo):
        secret = key.public_bytes(Encoding.PEM, pem)
        forged = sharing(secret).token({**CLAIMS, "role": "admin"}, kid="rsa")
        assert why(forged, public(tmp_path, signer)) == "jwt algorithm"
        assert why(sharing(secret).token(CLAIMS, alg="RS256", kid="rsa"), public(tmp_path, signer)) == (
            "jwt signature"
        )
        with pytest.raises(Misconfigured, match="others may know"):
            read_signers(told(secret=secret.decode()))


def test_a_key_must_be_named_and_known(tmp_path: Path) -> None:
    settings = public(tmp_path, rsa("a"))
    assert why(rsa("a").token(CLAIMS, kid=None), settings) == "jwt unknown key"
    assert why(rsa("b").token(CLAIMS), settings) == "jwt unknown key"
    assert why(rsa("b").token(CLAIMS, kid="a"), settings) == "jwt signature"
    assert why(rsa("a").token(CLAIMS, kid=["a"]), settings) == "jwt malformed"


def test_what_was_changed_is_refused() -> None:
    header, _, signature = sharing().token(CLAIMS).split(".")
    assert why(f"{header}.{part({**CLAIMS, 'role': 'admin'})}.{signature}") == "jwt signature"
    assert why(sharing("x" * 40).token(CLAIMS)) == "jwt signature"


def test_extensions_that_must_be_understood_are_refused() -> None:
    assert why(sharing().token(CLAIMS, crit=["exp"])) == "jwt malformed"
    assert why(sharing().token(CLAIMS, b64=False)) == "jwt malformed"


@pytest.mark.parametrize(
    "token",
    ["..", "a.b.c", "a.b.", f"{part([1])}.{part(CLAIMS)}.AA", f"{part({})}.{part(CLAIMS)}.AA", "é.é.é",
     f"{part(b'{' * 5000)}.e.e", f"{part(b'[' * 9000)}.e.e", "a" * 20_000 + ".b.c",
     part({"alg": "HS256"}) + "=.e.e"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str) -> None:
    assert why(token) == "jwt malformed"


@pytest.mark.parametrize("claims", [b"", b"[]", b"7", b"{", b"\xff", b'{"exp": 1e999}', b"[" * 9000])
def test_claims_that_cannot_be_read_are_refused(claims: bytes) -> None:
    if claims:
        assert why(sharing().token(claims)) == "jwt malformed"
    else:
        assert why(f"{part({'alg': 'HS256'})}..AA") == "jwt malformed"


def test_a_token_expires_and_begins_within_the_leeway() -> None:
    token = sharing().token({**CLAIMS, "nbf": NOW, "exp": NOW + 60})
    strict, lax = told(), told(leeway_seconds=5.0)
    assert why(token, strict, now=NOW - 0.001) == "jwt early"
    assert take(token, strict, now=NOW).subject == "alice"
    assert take(token, strict, now=NOW + 59.999).subject == "alice"
    assert why(token, strict, now=NOW + 60) == "jwt expired"
    assert why(token, lax, now=NOW - 5.001) == "jwt early"
    assert take(token, lax, now=NOW - 5).subject == "alice"
    assert take(token, lax, now=NOW + 64.999).expires_at == (NOW + 65) * 1_000_000
    assert why(token, lax, now=NOW + 65) == "jwt expired"


def test_a_token_that_never_expires_is_taken_only_where_that_is_said() -> None:
    token = sharing().token({"sub": "alice", "role": "admin"})
    assert why(token) == "jwt claims"
    assert take(token, told(expiry_required=False)).expires_at is None


@pytest.mark.parametrize("name", ["exp", "nbf"])
@pytest.mark.parametrize("value", ["1", True, [], {}, "never"])
def test_a_time_that_is_none_is_refused(name: str, value: Any) -> None:
    assert why(sharing().token({**CLAIMS, name: value})) == "jwt claims"


@pytest.mark.parametrize("far", [10**13, 10**40, 1e300])
def test_times_beyond_all_times_are_the_last_and_the_first(far: float) -> None:
    assert take(sharing().token({**CLAIMS, "exp": far})).subject == "alice"
    assert why(sharing().token({**CLAIMS, "exp": -far})) == "jwt expired"
    assert why(sharing().token({**CLAIMS, "nbf": far})) == "jwt early"


def test_issuer_and_audience_must_be_those_that_are_set() -> None:
    settings = told(issuer="us", audience="forebay")
    for audience in ("forebay", ["other", "forebay"]):
        assert take(sharing().token({**CLAIMS, "iss": "us", "aud": audience}), settings).subject == "alice"
    for issuer in (None, "them", ["us"]):
        assert why(sharing().token({**CLAIMS, "iss": issuer, "aud": "forebay"}), settings) == "jwt issuer"
    for wrong in (None, "other", ["other"], [], "forebay2", {"forebay": 1}):
        assert why(sharing().token({**CLAIMS, "iss": "us", "aud": wrong}), settings) == "jwt audience"
    assert take(sharing().token({**CLAIMS, "iss": "them", "aud": "other"})).subject == "alice"


# What a token allows


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"role": "read-only"}, ("read",)),
        ({"role": "read-write"}, ("read", "push", "take")),
        ({"role": "admin"}, ("admin",)),
        ({"role": ["read-only", "read-write"]}, ("read", "push", "take")),
        ({"roles": ["staff", "read-only"]}, ("read",)),
        ({"role": "read-only", "roles": ["admin"]}, ("read",)),
        ({"role": "owner", "roles": ["admin"]}, ()),
        ({"role": ["ADMIN", 7, None, ["admin"]]}, ()),
        ({"role": {"admin": True}}, ()),
        ({}, ()),
    ],
)
def test_roles_are_scopes(claims: dict[str, Any], scopes: tuple[str, ...]) -> None:
    caller = take(sharing().token({"sub": "alice", "exp": NOW + 60, **claims}))
    assert caller.scopes == scopes
    if not scopes:
        with pytest.raises(Forbidden, match="the JWT of 'alice' lacks the scope read; it has none"):
            caller.check("read")


def test_roles_are_looked_for_only_where_it_is_said() -> None:
    settings = told(role_claim="https://example.com/role")
    token = sharing().token({**CLAIMS, "roles": ["admin"], "https://example.com/role": "read-only"})
    assert take(token, settings).scopes == ("read",)
    assert take(sharing().token({**CLAIMS, "roles": ["admin"]}), settings).scopes == ()


def test_queues_are_prefixes_as_those_of_keys() -> None:
    caller = take(sharing().token({**CLAIMS, "queues": ["team/", "ours"]}))
    assert caller.covers("team/a")
    assert not caller.covers("a")
    with pytest.raises(Forbidden, match="the JWT of 'alice' is for queues that begin with 'team/', 'ours'"):
        caller.check("push", "theirs")


@pytest.mark.parametrize(
    "queues", [[], "team/", [""], [7], [[]], {"team/": 1}, ["x"] * 3 + ["y\n"], 0, False]
)
def test_a_restriction_that_is_not_understood_does_not_become_none(queues: Any) -> None:
    assert why(sharing().token({**CLAIMS, "queues": queues})) == "jwt claims"


def test_a_subject_is_a_name_or_there_is_none() -> None:
    nobody = take(sharing().token({"role": "admin", "exp": NOW + 60}))
    assert nobody.subject is None
    assert nobody.title == "the JWT"
    for wrong in ("", 7, ["mallory"], "x" * 256, "a\nb"):
        assert why(sharing().token({**CLAIMS, "sub": wrong})) == "jwt claims"


@given(st.one_of(st.text(max_size=60), st.lists(st.text(max_size=20), min_size=3, max_size=3).map(".".join)))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    token = token_in(f"Bearer {text}")
    assert (token is None) == (text.count(".") != 2)
    if token is not None:
        with pytest.raises(Unauthorized):
            take(token)


def test_a_token_is_told_from_a_key_by_its_dots() -> None:
    assert token_in("Bearer a.b.c") == token_in("bearer a.b.c") == "a.b.c"
    for other in (
        None,
        "",
        "Bearer",
        "Bearer fbk_x_y",
        "Bearer a.b",
        "Bearer a.b.c.d",
        "Basic a.b.c",
        "a.b.c",
    ):
        assert token_in(other) is None


# What signatures are checked with


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([], "no key for RS256"),
        ([{"kty": "oct", "kid": "a", "k": "AAAA"}], "no key for RS256"),
        ([{"kty": "RSA", "kid": "a", "use": "enc", "n": "AA", "e": "AQAB"}], "no key for RS256"),
        ([{"kty": "RSA", "kid": "a", "alg": "RS512", "n": "AA", "e": "AQAB"}], "no key for RS256"),
        ([{"kty": "RSA", "n": "AA", "e": "AQAB"}], "key 1 has no kid"),
        ([{"kty": "RSA", "kid": "a", "n": "AAAA", "e": "AQAB"}], "key 1 can't be used: it has 0 bits"),
        ([{"kty": "RSA", "kid": "a", "n": "A", "e": "AQAB"}], "key 1 can't be used"),
        ([rsa("a").jwk, rsa("a").jwk], "key 2 has the kid of another"),
        ([{"kty": "RSA", "kid": 7}], "no JSON Web Key Set"),
        ([7], "no JSON Web Key Set"),
    ],
)
def test_a_key_set_that_cannot_be_used_is_an_error(tmp_path: Path, keys: list[Any], said: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    with pytest.raises(Misconfigured, match=said) as caught:
        read_signers(told(algorithm="RS256", secret=None, key_set_file=str(file)))
    assert caught.value.key == "key_set_file"


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"keys": 1}', b"[" * 9000, bytes(1 << 21)])
def test_a_file_that_is_no_key_set_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(data)
    with pytest.raises(Misconfigured, match=r"keys\.json"):
        read_signers(told(algorithm="EdDSA", secret=None, key_set_file=str(tmp_path / "keys.json")))


def test_only_the_public_part_of_a_key_is_used(tmp_path: Path) -> None:
    signer = ed25519()
    settings = public(
        tmp_path, Signer("EdDSA", signer.sign, {**(signer.jwk or {}), "d": "AAAA"}), algorithm="EdDSA"
    )
    assert read_signers(settings)[0].has_private
    assert take(signer.token(CLAIMS), settings).subject == "alice"


@pytest.mark.parametrize("secret", ["", "x", "x" * 31])
def test_a_short_secret_is_refused_and_not_shown(tmp_path: Path, secret: str) -> None:
    (tmp_path / "secret").write_text(f"{secret}\n")
    with pytest.raises(Misconfigured, match=f"the secret has {len(secret)} bytes, fewer than 32"):
        read_signers(told(secret=None, secret_file=str(tmp_path / "secret")))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_break_is_no_part_of_a_secret(tmp_path: Path, end: str) -> None:
    (tmp_path / "secret").write_text(SECRET + end, newline="")
    settings = told(secret=None, secret_file=str(tmp_path / "secret"))
    assert take(sharing().token(CLAIMS), settings).subject == "alice"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"secret": SECRET}, "algorithm"),
        ({"key_set_file": "keys.json"}, "algorithm"),
        ({"algorithm": "HS256"}, "secret_file"),
        ({"algorithm": "RS256"}, "key_set_file"),
        ({"algorithm": "EdDSA", "secret": SECRET}, "secret"),
        ({"algorithm": "HS256", "secret": SECRET, "key_set_file": "keys.json"}, "key_set_file"),
        ({"algorithm": "HS256", "secret": SECRET, "secret_file": "secret"}, "secret_file"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        JwtSettings(**settings)
    assert caught.value.key == key
    assert SECRET not in str(caught.value)


def test_no_caller_comes_out_of_a_file_of_keys() -> None:
    caller = msgspec.structs.replace(take(sharing().token(CLAIMS)), id="12345678")
    with pytest.raises(msgspec.ValidationError, match="unknown field `sub`"):
        msgspec.json.decode(msgspec.json.encode(caller), type=Key)
    assert make_key("alice", ["push"], now=0)[0].subject is None
