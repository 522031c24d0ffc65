"""Payloads that are kept encrypted: AES-256-GCM under one of several keys, so that keys can be changed.

A sealed payload, byte by byte::

    0       version, 1
    1-4     id of the key: the first bytes of a SHA-256 over it
    5-16    nonce, random
    17-     the payload, encrypted, and a tag of 16 bytes over it and over the first five bytes

Invariants: whatever was changed on the way is noticed; no two payloads are sealed under the same key and
nonce, but by chance (96 random bits: change keys after some billions of messages); the first key seals and
all of them open; no key is in an error.
"""

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from forebay.api.queen.settings import KEY_PATTERN, QueenSettings
from forebay.api.secretfile import read_secret_file
from forebay.model import Corrupt, Misconfigured, Unavailable

__all__ = ["OVERHEAD_BYTES", "Opened", "Seal", "read_seal"]

_VERSION: Final = b"\x01"
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_VERSION) + _ID_BYTES
_BODY_AT: Final = _HEAD_BYTES + _NONCE_BYTES
OVERHEAD_BYTES: Final = _BODY_AT + _TAG_BYTES
"""By how much a sealed payload is longer."""
_KEYS_MAX: Final = 100
_KEY: Final = re.compile(KEY_PATTERN)

Opened: TypeAlias = bytes | Corrupt | Unavailable
"""A payload, or why there is none."""


class Seal:
    """Seals under the first of `keys`, of 32 bytes each, and opens what was sealed under any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys, "nothing can be sealed without a key"
        heads = [_head_of(key) for key in keys]
        self._ciphers = {head: AESGCM(key) for head, key in zip(heads, keys, strict=True)}
        if len(self._ciphers) < len(set(keys)):
            raise Misconfigured("two encryption keys have the same id", hint="make another in place of one")
        self._head = heads[0]
        self._cipher = self._ciphers[self._head]

    def __len__(self) -> int:
        return len(self._ciphers)

    def seal(self, payload: bytes) -> bytes:
        """One payload, sealed: `OVERHEAD_BYTES` longer, and different each time."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._head + nonce + self._cipher.encrypt(nonce, payload, self._head)

    def seal_batch(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Likewise, many of them."""
        head, encrypt = self._head, self._cipher.encrypt
        # The system is asked for random bytes once.
        random = os.urandom(_NONCE_BYTES * len(payloads))
        nonces = [random[at : at + _NONCE_BYTES] for at in range(0, len(random), _NONCE_BYTES)]
        return [
            head + nonce + encrypt(nonce, payload, head)
            for nonce, payload in zip(nonces, payloads, strict=True)
        ]

    def open(self, sealed: bytes) -> bytes:
        """The payload; Unavailable where its key isn't there, Corrupt where it isn't what was sealed."""
        head = sealed[:_HEAD_BYTES]
        cipher = self._ciphers.get(head)
        if cipher is None or len(sealed) < OVERHEAD_BYTES:
            raise _unknown(sealed)
        try:
            return cipher.decrypt(sealed[_HEAD_BYTES:_BODY_AT], sealed[_BODY_AT:], head)
        except InvalidTag:
            raise Corrupt(
                "a sealed payload was changed since it was sealed", hint="restore the log from a backup"
            ) from None

    def open_batch(self, sealed: Sequence[bytes]) -> list[Opened]:
        """Likewise, many of them; one that can't be opened doesn't keep the others closed."""
        return [self._try_open(one) for one in sealed]

    def _try_open(self, sealed: bytes) -> Opened:
        try:
            return self.open(sealed)
        except (Corrupt, Unavailable) as error:
            return error


def _head_of(key: bytes) -> bytes:
    """How what is sealed under a key begins. The digest tells nothing of a key that is random."""
    assert len(key) == _KEY_BYTES, "the keys of AES-256 have 32 bytes"
    return _VERSION + sha256(b"forebay seal" + key).digest()[:_ID_BYTES]


def _unknown(sealed: bytes) -> Corrupt | Unavailable:
    if len(sealed) < OVERHEAD_BYTES or not sealed.startswith(_VERSION):
        text = "a payload that should be sealed isn't, or by a newer Forebay"
        return Corrupt(text, hint="was encryptionEnabled changed, or is this an older Forebay?")
    id = sealed[len(_VERSION) : _HEAD_BYTES].hex()
    hint = "add that key to queen.encryption_keys_file, and start the server again"
    return Unavailable(f"a payload is sealed under the key {id}, which the server doesn't have", hint=hint)


def read_seal(settings: QueenSettings) -> Seal | None:
    """The seal by these settings, None without a key; Misconfigured says which line of a file is wrong."""
    keys = [] if settings.encryption_keys_file is None else _read_keys(Path(settings.encryption_keys_file))
    if settings.encryption_key is not None:
        keys.append(bytes.fromhex(settings.encryption_key))
    return Seal(list(dict.fromkeys(keys))) if keys else None


def _read_keys(path: Path) -> list[bytes]:
    data, _ = read_secret_file(path, "the encryption keys", "encryption_keys_file")
    keys = []
    for number, line in enumerate(data.decode("latin-1").splitlines(), 1):
        if not (text := line.strip()):
            continue
        if not _KEY.match(text):
            raise _bad(f"{path}:{number}: this is no key of 64 hexadecimal digits")
        keys.append(bytes.fromhex(text))
    if not 0 < len(keys) <= _KEYS_MAX:
        raise _bad(f"{path} has {len(keys)} keys, not 1 to {_KEYS_MAX}")
    return keys


def _bad(text: str) -> Misconfigured:
    hint = "make a key with `openssl rand -hex 32`, one a line"
    return Misconfigured(text, hint=hint, key="encryption_keys_file")
