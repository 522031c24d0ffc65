"""The file `attempts` beside a queue: how often entries have failed, so that a restart doesn't forget it.

It is written about once a second while entries fail, and never because of a push or a delivery. It is
advice: where it is missing, old or damaged, entries begin with fewer attempts, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from forebay.disk import Disk

__all__ = ["ATTEMPTS", "AttemptFile", "Attempts"]

ATTEMPTS: Final = "attempts"
_TEMPORARY: Final = "attempts.tmp"
_BYTES_MAX: Final = 4 << 20
Attempts: TypeAlias = Mapping[int, int]
"""Failed attempts by the sequence number of an entry."""

_encode: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(dict[int, int])


class AttemptFile:
    """The file of one queue. Used by one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> dict[int, int]:
        """Read it; nothing where that can't be done."""
        try:
            file = self._disk.open(ATTEMPTS)
        except OSError:
            return {}
        try:
            return _DECODER.decode(file.read_at(0, _BYTES_MAX))
        except (OSError, msgspec.MsgspecError):
            return {}
        finally:
            file.close()

    def save(self, attempts: Attempts) -> None:
        """Replace it, without waiting for the disk; a disk that doesn't take it keeps the one before."""
        with suppress(OSError):
            with suppress(FileNotFoundError):
                self._disk.remove(_TEMPORARY)
            file = self._disk.open(_TEMPORARY, create=True)
            try:
                file.append(_encode(attempts))
            finally:
                file.close()
            self._disk.rename(_TEMPORARY, ATTEMPTS)
