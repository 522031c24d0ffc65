"""API keys: who may do what, and how a key that is shown is recognised.

A key is `fbk_<id>_<secret>`. The id is public: it names the key in lists and logs. The secret is 32 random
bytes. Kept is only the SHA-256 of the whole key: a slow hash such as argon2 makes guessing *passwords*
costly, but nobody guesses 256 random bits at any speed, and a fast hash can be computed for every request,
so that no session and no cache of secrets is needed. Digests are compared in constant time.

Invariants: a secret is never stored, logged or put in an error; what a caller is told about a bad key is
the same whatever is wrong with it; a key that was revoked or has expired is refused within a second.
`keyfile` keeps keys on disk, `keyring` is what a server asks.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec

from forebay.model import Forbidden, Rejected, Unauthorized
from forebay.model.limits import check_text

__all__ = [
    "ANYONE",
    "REASONS",
    "SCOPES",
    "Key",
    "Scope",
    "checked_prefixes",
    "digest_of",
    "make_key",
    "presented",
    "recognised",
    "unauthorized",
]

Scope: TypeAlias = Literal["read", "push", "take", "admin"]
Reason: TypeAlias = Literal["missing", "malformed", "unknown", "revoked", "expired"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 8
_SECRET_BYTES: Final = 32
_SECRET_LENGTH: Final = 43
"""Digits to the base of 62 that hold 256 bits."""
_NAME_BYTES_MAX: Final = 255
_PREFIXES_MAX: Final = 100
_SHOWN_PREFIXES: Final = 5
_KEY: Final = re.compile(rf"fbk_([0-9A-Za-z]{{{_ID_LENGTH}}})_[0-9A-Za-z]{{{_SECRET_LENGTH}}}")

_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of a key; times are microseconds UTC."""

    id: Annotated[str, msgspec.Meta(pattern=rf"^[0-9A-Za-z]{{{_ID_LENGTH}}}$")]
    name: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the whole key, in hexadecimal digits."""
    scopes: tuple[Scope, ...]
    """What it may do; `admin` includes the others."""
    queues: tuple[str, ...] = ()
    """The beginnings of the names of queues that it is for; none is for all."""
    created_at: _Time
    expires_at: _Time | None = None
    revoked_at: _Time | None = None
    rate_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Requests per second, on average; none for the server's own setting."""
    burst: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Requests at once; none for those of one second."""

    @property
    def subject(self) -> str | None:
        """Who the caller is, where that is vouched for: by a JWT. An API key tells nobody's name."""
        return None

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"key {self.id}"

    def has(self, scope: Scope) -> bool:
        """Tell whether the key has a scope."""
        return scope in self.scopes or "admin" in self.scopes

    def covers(self, queue: str) -> bool:
        """Tell whether the key is for a queue; to leave others out of lists."""
        return not self.queues or queue.startswith(self.queues)

    def allows(self, scope: Scope, queue: str | None = None) -> bool:
        """Tell whether the key may do something to a queue; None is what concerns the whole server."""
        return self.has(scope) and (not self.queues if queue is None else self.covers(queue))

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """Raise Forbidden when the key may not do it, and say what it lacks."""
        if self.allows(scope, queue):
            return
        if not self.has(scope):
            raise Forbidden(
                f"{self.title} lacks the scope {scope}; it has {', '.join(self.scopes) or 'none'}",
                hint=f"use a key with the scope {scope}, or a JWT with a role that has it",
            )
        what = "what concerns all queues" if queue is None else f"queue {queue!a}"
        shown = ", ".join(map(ascii, self.queues[:_SHOWN_PREFIXES]))
        more = ", ..." if len(self.queues) > _SHOWN_PREFIXES else ""
        raise Forbidden(
            f"{self.title} is for queues that begin with {shown}{more}, not for {what}",
            hint="use a key without queue prefixes, or with one that fits",
        )

    def reason_against(self, now: int) -> Reason | None:
        """Why the key isn't valid at a time, if so."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now >= self.expires_at else None


ANYONE: Final = Key(id="anyone00", name="anyone", digest="0" * 64, scopes=("admin",), created_at=0)
"""Who asks where there are no keys at all: may do everything. No key has this digest."""


def make_key(
    name: str,
    scopes: Iterable[str],
    *,
    now: int,
    queues: Iterable[str] = (),
    expires_at: int | None = None,
    rate_per_second: float | None = None,
    burst: int | None = None,
) -> tuple[Key, str]:
    """A new key and its text, which is shown once and kept nowhere."""
    if not check_text(name, "name of the key", _NAME_BYTES_MAX).strip():
        raise Rejected("the name of the key is empty", hint="say whose it is, or what it is for")
    if expires_at is not None and expires_at <= now:
        raise Rejected("the key would expire at once", hint="give a longer time, like 30d")
    if rate_per_second is not None and not 0.001 <= rate_per_second <= 1e9:  # noqa: PLR2004 - said in the hint
        raise Rejected(f"the rate is {rate_per_second}", hint="give 0.001 to 1000000000 requests per second")
    if burst is not None and not 1 <= burst <= 1_000_000_000:  # noqa: PLR2004 - said in the hint
        raise Rejected(f"the burst is {burst}", hint="give 1 to 1000000000 requests")
    id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    text = f"fbk_{id}_{_digits(secrets.token_bytes(_SECRET_BYTES))}"
    key = Key(
        id=id,
        name=name,
        digest=digest_of(text),
        scopes=_checked_scopes(scopes),
        queues=checked_prefixes(queues),
        created_at=now,
        expires_at=expires_at,
        rate_per_second=rate_per_second,
        burst=burst,
    )
    return key, text


def _digits(data: bytes) -> str:
    """A number to the base of 62: only letters and digits, so that a double click selects it."""
    number, digits = int.from_bytes(data), []
    for _ in range(_SECRET_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def _checked_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    asked = set(scopes)
    if unknown := sorted(asked.difference(SCOPES)):
        raise Rejected(f"there is no scope {unknown[0]!a}", hint=f"use {', '.join(SCOPES)}")
    if not asked:
        raise Rejected("the key has no scope", hint=f"give it some of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in asked)


def checked_prefixes(queues: Iterable[str]) -> tuple[str, ...]:
    """The beginnings of names that a key is for, each once; or Rejected."""
    prefixes = tuple(dict.fromkeys(queues))
    if len(prefixes) > _PREFIXES_MAX:
        raise Rejected(f"the key has {len(prefixes)} queue prefixes", hint=f"give {_PREFIXES_MAX} at most")
    for prefix in prefixes:
        if not check_text(prefix, "queue prefix", _NAME_BYTES_MAX):
            raise Rejected("a queue prefix is empty", hint="leave it out: a key without is for all queues")
    return prefixes


def digest_of(text: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(text.encode()).hexdigest()


def presented(authorization: str | None) -> tuple[str, str]:
    """The id and the digest of the key in an `Authorization` header."""
    if not authorization:
        raise unauthorized("missing")
    scheme, _, text = authorization.partition(" ")
    if (scheme != "Bearer" and scheme.lower() != "bearer") or not (found := _KEY.fullmatch(text)):
        raise unauthorized("malformed")
    return found[1], digest_of(text)


def recognised(key: Key | None, digest: str, now: int) -> Key:
    """The key that has the id that was shown, if it is that key and valid."""
    # Compared also where no key has the id, so that both take the same time.
    if not hmac.compare_digest((key or ANYONE).digest, digest) or key is None:
        raise unauthorized("unknown")
    if reason := key.reason_against(now):
        raise unauthorized(reason)
    return key


def unauthorized(reason: Reason) -> Unauthorized:
    """The one answer to every key that isn't valid."""
    return Unauthorized(
        "no valid API key came with the request",
        hint="send the header Authorization: Bearer fbk_..., with a key that is neither revoked nor expired,"
        " or with a JWT where the server takes them",
        reason=reason,
    )
