"""Who is let in: the key of a request, its scope, and how often it may ask."""

from __future__ import annotations

from time import monotonic

from forebay.api.keyring import KeyRing
from forebay.api.keys import Key, Scope
from forebay.api.rate import RateLimits


class Gate:
    """The keys of a server, and their rates."""

    def __init__(self, ring: KeyRing, rates: RateLimits | None = None) -> None:
        self.ring = ring
        self.rates = rates or RateLimits()

    def admit(self, authorization: str | None, scope: Scope) -> Key:
        """The key of a request, or Unauthorized, Forbidden or TooMany; its queues are asked for later."""
        key = self.ring.verify(authorization)
        if not key.has(scope):
            key.check(scope)
        self.rates.check(key, monotonic())
        return key
