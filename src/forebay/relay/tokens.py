"""Tokens that clients of a relay show: lines of a file, which is read again when it changes.

Invariants: any line of the file is good, so that a token can be replaced without an outage; a file that can't
be read leaves the tokens as they were; how long a comparison takes says nothing about a token.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final

from forebay.deliver.values import Headers
from forebay.file_watch import FileWatch
from forebay.model import Misconfigured
from forebay.relay.settings import RelaySettings

__all__ = ["Tokens", "read_tokens", "tokens_of"]

logger: Final = logging.getLogger("forebay.relay")
_FILE_BYTES_MAX: Final = 64 << 10
_CHARACTERS_MIN: Final = 16
_AUTHORIZATION: Final = b"authorization"
_SCHEME: Final = b"bearer "


class Tokens:
    """The tokens of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watch = FileWatch(path)
        self._digests = _digests(path)

    def has(self, headers: Headers) -> bool:
        """Tell if a request shows one of the tokens."""
        for name, value in headers:
            if len(name) == len(_AUTHORIZATION) and name.lower() == _AUTHORIZATION:
                if value[: len(_SCHEME)].lower() != _SCHEME:
                    return False
                shown = sha256(value[len(_SCHEME) :].strip()).digest()
                return any([compare_digest(shown, known) for known in self._digests])  # noqa: C419 - all of them
        return False

    def look(self) -> None:
        """Read the file again if it has changed."""
        if not self._watch.has_changed():
            return
        try:
            self._digests = _digests(self._path)
        except Misconfigured as error:
            logger.error("the tokens stay as they were: %s", error)  # noqa: TRY400 - no trace helps here
        else:
            logger.info("%d tokens are read from %s", len(self._digests), self._path)


def tokens_of(settings: RelaySettings) -> Tokens | None:
    """The tokens that the settings name; None where none is asked for. Misconfigured names a bad file."""
    return None if settings.token_file is None else Tokens(Path(settings.token_file))


def read_tokens(path: Path) -> list[bytes]:
    """The tokens of a file; Misconfigured names it, and quotes nothing of it."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _bad(
            f"the tokens in {path} can't be read: {error.strerror}", "name a file that is there"
        ) from None
    found = [line.strip() for line in data.splitlines() if line.strip()]
    if not found or len(data) > _FILE_BYTES_MAX:
        raise _bad(f"{path} holds no token, or too many", "write a token a line")
    if any(len(token) < _CHARACTERS_MIN or not _is_plain(token) for token in found):
        raise _bad(
            f"a token in {path} has fewer than {_CHARACTERS_MIN} characters, or some that no header may have",
            "make one with `openssl rand -hex 32`",
        )  # fmt: skip
    return found


def _digests(path: Path) -> list[bytes]:
    return [sha256(token).digest() for token in read_tokens(path)]


def _is_plain(token: bytes) -> bool:
    return all(0x21 <= byte <= 0x7E for byte in token)  # noqa: PLR2004 - printable ASCII without space


def _bad(text: str, hint: str) -> Misconfigured:
    return Misconfigured(text, hint=hint, key="token_file")
