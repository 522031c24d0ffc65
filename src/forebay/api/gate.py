"""Who is let in: the key or the JWT of a request, its scope, and how often it may ask."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from forebay.api.jwt.ring import JwtRing
from forebay.api.jwt.tokens import token_in
from forebay.api.keyring import KeyRing
from forebay.api.keys import Key, Scope
from forebay.api.rate import RateLimits


class Gate:
    """The keys of a server, the JWTs that it takes, and their rates.

    Where there are JWTs, `ring` must require keys; else whoever shows nothing would be let in.
    """

    def __init__(
        self, ring: KeyRing, rates: RateLimits | None = None, *, tokens: JwtRing | None = None
    ) -> None:
        self.ring = ring
        self.rates = rates or RateLimits()
        self.tokens = tokens
        """Those who sign JWTs; None where none are taken."""

    def admit(self, authorization: str | None, scope: Scope) -> Key:
        """The key of a request, or Unauthorized, Forbidden or TooMany; its queues are asked for later."""
        key = self._identify(authorization)
        if not key.has(scope):
            key.check(scope)
        self.rates.check(key, monotonic())
        return key

    def _identify(self, authorization: str | None) -> Key:
        """By the form of it: a JWT has two dots, a key has none."""
        if self.tokens is not None and (token := token_in(authorization)) is not None:
            return self.tokens.verify(token)
        return self.ring.verify(authorization)

    @property
    def refused(self) -> Counter[str]:
        """How many were turned away, by reason."""
        return Counter({**self.ring.refused, **({} if self.tokens is None else self.tokens.refused)})

    def problems(self) -> dict[str, str]:
        """What is older than its file, and why: looked at now, if it wasn't within a second."""
        rings: dict[str, KeyRing | JwtRing | None] = {"keys": self.ring, "jwt": self.tokens}
        found = {}
        for name, ring in rings.items():
            if ring is not None:
                ring.look()
                if ring.problem is not None:
                    found[name] = f"going on with those that were known: {ring.problem}"
        return found
