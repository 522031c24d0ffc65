"""Input in lines, and lines as messages, in bounded memory.

Invariants: no more than one chunk is read ahead; a line that is too long is refused by its number before
it is held whole; what was not yet read can be waited for, and given up, without holding up the process.
"""

import asyncio
import base64
import binascii
import os
import threading
from typing import Final

import msgspec

from forebay.model import Message, Rejected, TooLarge, format_bytes

__all__ = ["LINE_BYTES_MAX", "Input", "Lines", "parse_object"]

CHUNK_BYTES: Final = 256 << 10
LINE_BYTES_MAX: Final = 4 << 20
"""Enough for the largest message in base64 with its headers."""


class Input:
    """Bytes of a file descriptor, read by a thread of its own, a chunk at a time.

    The thread is a daemon's and reads without a buffer, so that a read that never ends (a terminal, a
    silent pipe) keeps nobody from leaving.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(1)
        threading.Thread(target=self._read, name="input", daemon=True).start()

    async def chunk(self) -> bytes:
        """What came next; empty at the end. May be cancelled, and then nothing is lost."""
        found = await self._chunks.get()
        if isinstance(found, OSError):
            raise Rejected(f"the input can't be read: {found}", hint="check the file") from found
        self._room.release()
        return found

    def _read(self) -> None:
        while True:
            self._room.acquire()
            found: bytes | OSError
            try:
                found = os.read(self._descriptor, CHUNK_BYTES)
            except OSError as error:
                found = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, found)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            if not found or isinstance(found, OSError):
                return


class Lines:
    """Cuts chunks into lines. Empty lines are left out, but counted."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._rest = b""
        self.number = 0
        """The number of the last line that was cut off."""

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """The lines that a chunk completes, each with its number."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        found = [self._numbered(line) for line in whole]
        if len(self._rest) > self._bytes_max:
            raise _too_long(self.number + 1, self._bytes_max)
        return [(number, line) for number, line in found if line]

    def end(self) -> list[tuple[int, bytes]]:
        """The last line, if it isn't ended by a line end."""
        rest, self._rest = self._rest, b""
        return [self._numbered(rest)] if rest else []

    def _numbered(self, line: bytes) -> tuple[int, bytes]:
        self.number += 1
        line = line.removesuffix(b"\r")
        if len(line) > self._bytes_max:
            raise _too_long(self.number, self._bytes_max)
        return self.number, line


def _too_long(number: int, bytes_max: int) -> TooLarge:
    return TooLarge(f"line {number} is longer than {format_bytes(bytes_max)}", hint="split it")


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw
    encoding: str | None = None
    partition: str | None = None
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


_OBJECTS: Final = msgspec.json.Decoder(_Object)
_HINT: Final = "give objects with payload, and partition, transaction_id, headers, encoding where needed"


def parse_object(number: int, line: bytes, default: Message) -> Message:
    """The message that a line of JSON describes; what it doesn't say is as in `default`.

    A payload that is a string is its text (or its bytes, with `"encoding": "base64"`); any other is the
    JSON itself, as it is.
    """
    try:
        found = _OBJECTS.decode(line)
        payload = _payload(found)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(f"line {number}: {error}", hint=_HINT) from error
    except RecursionError as error:
        raise Rejected(
            f"line {number}: the JSON is nested too deeply", hint="push it with --lines"
        ) from error
    return Message(
        payload,
        default.partition if found.partition is None else found.partition,
        found.transaction_id,
        {**(default.headers or {}), **(found.headers or {})} or None,
    )


def _payload(found: _Object) -> bytes:
    raw = bytes(found.payload)
    if found.encoding not in (None, "base64"):
        raise msgspec.ValidationError(f"encoding is {found.encoding!r}, not base64")
    text = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else None
    if found.encoding is None:
        return raw if text is None else text.encode()
    if text is None:
        raise msgspec.ValidationError("payload is no string, but encoding is base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise msgspec.ValidationError(f"payload is no base64: {error}") from error
