"""The tokens that a server takes: a signature is checked once, and the key set read again when it changes.

Invariants: a token is remembered until it expires, and forgotten when those who sign change; a file that is
damaged or gone is reported, and those who could sign go on; no token is kept, only its digest.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from forebay.api.jwt.settings import JwtSettings
from forebay.api.jwt.signers import path_of, read_signers
from forebay.api.jwt.tokens import REASONS, Caller, recognised_caller
from forebay.file_watch import Stamp, stamp_of
from forebay.model import Clock, Misconfigured, SystemClock, Unauthorized

__all__ = ["JwtRing"]

_LOOK_SECONDS: Final = 1.0
_SEEN_MAX: Final = 20_000


class JwtRing:
    """Those who sign by these settings. `elapsed` gives the seconds of a clock that never jumps."""

    def __init__(
        self,
        settings: JwtSettings,
        clock: Clock | None = None,
        *,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._path = path_of(settings)
        self._clock = clock or SystemClock()
        self._elapsed = elapsed
        self._seen: dict[bytes, Caller] = {}
        """Callers by the digest of their token, of those that were found valid."""
        self._look_at = elapsed() + _LOOK_SECONDS
        self.problem: Misconfigured | None = None
        """Why those who sign are older than the file."""
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)
        """How many were turned away, by reason."""
        self._stamp: Stamp | None
        self._signers, self._stamp = read_signers(settings)

    def verify(self, token: str) -> Caller:
        """Whom a token speaks of, or Unauthorized."""
        self.look()
        # The hot path, as for keys: a digest of 256 bits tells nothing by the time its lookup takes.
        seen = sha256(token.encode(errors="replace")).digest()
        caller = self._seen.get(seen)
        now = self._clock.now()
        if caller is not None and (caller.expires_at is None or now < caller.expires_at):
            return caller
        try:
            caller = recognised_caller(token, self._signers, self._settings, now)
        except Unauthorized as error:
            self.refused[error.reason] += 1
            self._seen.pop(seen, None)
            raise
        if len(self._seen) >= _SEEN_MAX:
            self._seen.clear()
        self._seen[seen] = caller
        return caller

    def look(self) -> None:
        """Refresh, if it was a second ago or longer that it was done."""
        if self._path is not None and self._elapsed() >= self._look_at:
            self.refresh()

    def refresh(self) -> None:
        """Look whether the file has changed, and if so read it; `problem` says what came of it."""
        assert self._path is not None
        self._look_at = self._elapsed() + _LOOK_SECONDS
        try:
            stamp = stamp_of(self._path.stat())
        except OSError:
            # Gone or out of reach: reading says which.
            stamp = None
        if stamp is not None and stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._signers, self._stamp = read_signers(self._settings)
        except Misconfigured as error:
            self.problem = error
            return
        self._seen.clear()
        self.problem = None
