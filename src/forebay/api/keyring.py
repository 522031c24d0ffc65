"""The keys that a server knows: read once, looked at again when the file changes.

Invariants: once there are keys, they are asked for, whatever becomes of the file: a file that is damaged or
gone is reported, and the keys that were known go on; verifying never waits for a database.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from forebay.api.keyfile import read_keys
from forebay.api.keys import ANYONE, REASONS, Key, presented, recognised
from forebay.file_watch import Stamp, stamp_of
from forebay.model import Clock, Misconfigured, SystemClock, Unauthorized

__all__ = ["KeyRing"]

_LOOK_SECONDS: Final = 1.0
_SEEN_MAX: Final = 20_000


class KeyRing:
    """The keys of one file. `elapsed` gives the seconds of a clock that never jumps.

    With `required`, a key is needed also where there is no file: somebody may have a JWT, but not anyone.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        *,
        required: bool = False,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._elapsed = elapsed
        self._required = required
        self._keys: dict[str, Key] = {}
        self._seen: dict[bytes, Key] = {}
        """Keys by the digest of the header that they came in, of those that were found valid."""
        self._stamp: Stamp | None = None
        self._look_at = elapsed() + _LOOK_SECONDS
        self.guarded = False
        """There is a file of keys, so a key is needed. It stays so until the server ends."""
        self.problem: Misconfigured | None = None
        """Why the keys are older than the file."""
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)
        """How many were turned away, by reason."""
        self._load()

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, authorization: str | None) -> Key:
        """The key in an `Authorization` header, or Unauthorized; `ANYONE` where there are no keys."""
        self.look()
        if not (self.guarded or self._required):
            return ANYONE
        # The hot path. A digest of 256 bits tells nothing of the header by the time its lookup takes.
        seen = sha256(authorization.encode(errors="replace")).digest() if authorization else b""
        key = self._seen.get(seen)
        if key is not None and (key.expires_at is None or self._clock.now() < key.expires_at):
            return key
        try:
            key = self._recognise(authorization)
        except Unauthorized as error:
            self.refused[error.reason] += 1
            raise
        if len(self._seen) >= _SEEN_MAX:
            self._seen.clear()
        self._seen[seen] = key
        return key

    def _recognise(self, authorization: str | None) -> Key:
        id, digest = presented(authorization)
        return recognised(self._keys.get(id), digest, self._clock.now())

    def look(self) -> None:
        """Refresh, if it was a second ago or longer that it was done."""
        if self._elapsed() >= self._look_at:
            self.refresh()

    def refresh(self) -> None:
        """Look whether the file has changed, and if so read it; `problem` says what came of it."""
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
            self._load()
        except Misconfigured as error:
            self.problem = error

    def _load(self) -> None:
        found = read_keys(self._path)
        if found is None:
            if self.guarded:
                text = f"the file of keys {self._path} is gone; the keys that were in it go on"
                self.problem = Misconfigured(text, hint="restore it from a copy, or make a new key")
            return
        keys, self._stamp = found
        self._keys = {key.id: key for key in keys}
        self._seen.clear()
        self.guarded = True
        self.problem = None
