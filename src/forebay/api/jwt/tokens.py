"""A token on its way to a key: its form, its signature, its claims; pure, with the clock passed in.

A token (RFC 7519) is three parts in base64url with dots between them: a header, claims, a signature of both.
The algorithm is the server's to say: a header that names another is refused before anything else.

Invariants: nothing that a token says counts before its signature is checked, but for `alg` and `kid`, which
can only be what the server knows; what can't be understood is refused, never taken for absent; a refusal says
what is wrong, and nothing of the token.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from forebay.api.jwt.settings import ROLE_CLAIM, JwtSettings
from forebay.api.jwt.signers import Checker, Signers
from forebay.api.keys import Key, Scope, checked_prefixes
from forebay.model import Rejected, Unauthorized
from forebay.model.clock import TIME_MAX
from forebay.model.limits import check_text

__all__ = ["REASONS", "ROLES", "Caller", "recognised_caller", "token_in"]

Reason: TypeAlias = Literal[
    "jwt malformed", "jwt algorithm", "jwt unknown key", "jwt signature", "jwt expired", "jwt early",
    "jwt issuer", "jwt audience", "jwt claims",
]  # fmt: skip
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

ROLES: Final[Mapping[str, tuple[Scope, ...]]] = {
    "read-only": ("read",),
    "read-write": ("read", "push", "take"),
    "admin": ("admin",),
}
"""What the roles in tokens may do; roles of other systems count for nothing."""

_CHARACTERS_MAX: Final = 16 << 10
_SUBJECT_BYTES_MAX: Final = 255
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_DOTS: Final = 2
_MICROSECONDS: Final = 1_000_000
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)


class Caller(Key, frozen=True, kw_only=True):
    """Whom a token speaks of, as a key of a request; there is no such key in a file."""

    sub: str | None = None

    @property
    def subject(self) -> str | None:
        """Who the token says that he is."""
        return self.sub

    @property
    def title(self) -> str:
        """What errors call it."""
        return "the JWT" if self.sub is None else f"the JWT of {self.sub!a}"


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    crit: Any = msgspec.UNSET
    b64: Any = msgspec.UNSET


def token_in(authorization: str | None) -> str | None:
    """The token in an `Authorization` header; None where there is something else, like an API key."""
    if authorization is None or authorization.count(".") != _DOTS:
        return None
    scheme, _, text = authorization.partition(" ")
    return text if scheme.lower() == "bearer" else None


def recognised_caller(text: str, signers: Signers, settings: JwtSettings, now: int) -> Caller:
    """Whom a token speaks of at a time, in microseconds; or Unauthorized."""
    found = _FORM.fullmatch(text) if len(text) <= _CHARACTERS_MAX else None
    if found is None:
        raise _malformed()
    try:
        header = msgspec.json.decode(_bytes(found[1]), type=_Header)
        signature = _bytes(found[3])
    except _UNREADABLE:
        raise _malformed() from None
    check = _checker(header, signers)
    if not check(text.rpartition(".")[0].encode(), signature):
        raise _refused("jwt signature", "the signature of the JWT is wrong", "sign it with a key we know")
    try:
        claims = msgspec.json.decode(_bytes(found[2]), type=dict[str, Any])
    except _UNREADABLE:
        raise _malformed() from None
    return _caller(claims, settings, now)


def _bytes(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _checker(header: _Header, signers: Signers) -> Checker:
    if header.alg != signers.algorithm:
        text = f"the JWT isn't signed with {signers.algorithm}"
        raise _refused("jwt algorithm", text, f"sign it with {signers.algorithm}, as the server is told")
    if header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET:
        text = "the JWT needs extensions that the server doesn't have"
        raise _refused("jwt malformed", text, "leave crit and b64 out of its header")
    if signers.secret is not None:
        return signers.secret
    if header.kid is None:
        text = "the JWT doesn't say which key has signed it"
        raise _refused("jwt unknown key", text, "name the key by kid in its header")
    if (check := signers.keys.get(header.kid)) is None:
        text = "the JWT is signed with a key that the server doesn't know"
        raise _refused("jwt unknown key", text, "use a key of the server's key set, or add it to that")
    return check


def _caller(claims: Mapping[str, Any], settings: JwtSettings, now: int) -> Caller:
    expires_at = _checked_times(claims, settings, now)
    if settings.issuer is not None and claims.get("iss") != settings.issuer:
        raise _refused("jwt issuer", "the JWT is of another issuer", "its iss must be what jwt.issuer says")
    if settings.audience is not None and settings.audience not in _listed(claims.get("aud")):
        text = "the JWT is for another audience"
        raise _refused("jwt audience", text, "its aud must be or have what jwt.audience says")
    subject = _subject(claims)
    return Caller(
        id="jwt" if subject is None else f"jwt:{subject}",
        name="jwt" if subject is None else subject,
        digest="0" * 64,
        scopes=_scopes(claims, settings),
        queues=_prefixes(claims),
        created_at=0,
        expires_at=expires_at,
        sub=subject,
    )


def _checked_times(claims: Mapping[str, Any], settings: JwtSettings, now: int) -> int | None:
    """Check `exp` and `nbf`; return the time from which on the token isn't taken, if there is one."""
    leeway = round(settings.leeway_seconds * _MICROSECONDS)
    early, late = _time(claims, "nbf"), _time(claims, "exp")
    if early is not None and now < early - leeway:
        raise _refused("jwt early", "the JWT isn't valid yet", "wait until its nbf, and compare the clocks")
    if late is None:
        if settings.expiry_required:
            raise _refused("jwt claims", "the JWT never expires", "give it an exp")
        return None
    if now >= late + leeway:
        raise _refused("jwt expired", "the JWT has expired", "get a new one, and compare the clocks")
    return late + leeway


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refused("jwt claims", f"{name} of the JWT is no number", "give seconds since 1970")
    return int(min(max(seconds, 0), TIME_MAX // _MICROSECONDS) * _MICROSECONDS)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _subject(claims: Mapping[str, Any]) -> str | None:
    if claims.get("sub") is None:
        return None
    try:
        subject = check_text(claims["sub"], "sub", _SUBJECT_BYTES_MAX)
    except Rejected:
        subject = ""
    if not subject:
        hint = f"give a text of 1 to {_SUBJECT_BYTES_MAX} bytes without control characters"
        raise _refused("jwt claims", "sub of the JWT is no name", hint)
    return subject


def _scopes(claims: Mapping[str, Any], settings: JwtSettings) -> tuple[Scope, ...]:
    """What the roles allow together. Without any that we know, nothing: the answer is 403 then."""
    said = claims.get(settings.role_claim)
    if said is None and settings.role_claim == ROLE_CLAIM:
        # Not where another claim is named: these may be roles in another system.
        said = claims.get("roles")
    roles = [role for role in _listed(said) if isinstance(role, str)]
    return tuple(dict.fromkeys(scope for role in roles for scope in ROLES.get(role, ())))


def _prefixes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The beginnings of names in `queues`. An empty list may mean all or none, so it is refused."""
    said = claims.get("queues")
    if said is None:
        return ()
    try:
        prefixes = checked_prefixes(said) if isinstance(said, list) else ()
    except (Rejected, TypeError):
        prefixes = ()
    if not prefixes:
        hint = "give a list of the beginnings of names, or leave it out for all queues"
        raise _refused("jwt claims", "queues of the JWT is no list of queue prefixes", hint)
    return prefixes


def _malformed() -> Unauthorized:
    return _refused("jwt malformed", "the JWT can't be read", "send it whole, as its issuer made it")


def _refused(reason: Reason, text: str, hint: str) -> Unauthorized:
    return Unauthorized(text, hint=hint, reason=reason)
