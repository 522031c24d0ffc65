"""An answer as its bytes come in: parsed by httptools, bounded in head and body."""

from __future__ import annotations

from typing import Final

import httptools

from forebay.deliver.values import ANSWER_BYTES_KEPT

__all__ = ["AnswerParser", "BadAnswerError"]

_CONTINUE: Final = range(100, 200)
_SWITCHING: Final = 101


class BadAnswerError(ConnectionError):
    """The destination sent what isn't an HTTP answer, or one without bounds."""


class AnswerParser:
    """Takes the bytes of one connection; the callbacks named `on_...` are httptools'.

    `has_head` is set when a final status is known, `is_complete` when the answer has ended. Interim answers
    (1xx) are passed over. Bytes past the end of an answer make it `is_dirty`: the connection is out of step.
    """

    __slots__ = (
        *("_body_bytes_left", "_head_bytes_left", "_interim", "_limits", "_parser"),
        *("body", "has_head", "is_complete", "is_dirty", "is_kept", "retry_after", "status"),
    )

    def __init__(self, head_bytes_max: int, body_bytes_max: int) -> None:
        self._limits = head_bytes_max, body_bytes_max
        self._parser = httptools.HttpResponseParser(self)
        self.reset()

    def reset(self) -> None:
        """Get ready for the next answer of the connection."""
        self._head_bytes_left, self._body_bytes_left = self._limits
        self._interim = False
        self.has_head = self.is_complete = self.is_dirty = self.is_kept = False
        self.status = 0
        self.retry_after: bytes | None = None
        self.body = b""

    def feed(self, data: bytes) -> None:
        """Take bytes in. BadAnswerError when they make no answer, or its head has no end."""
        if not self.has_head:
            self._head_bytes_left -= len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_dirty = True
        except httptools.HttpParserError as error:
            if self.is_complete:
                self.is_dirty = True
                return
            raise BadAnswerError(f"the destination sent no HTTP answer: {error}") from None
        if self._head_bytes_left < 0 and not self.has_head:
            raise BadAnswerError(f"the head of the answer is over {self._limits[0]} bytes")

    @property
    def is_over(self) -> bool:
        """Whether the body is over its limit; then the rest of it isn't read."""
        return self._body_bytes_left < 0

    def on_message_begin(self) -> None:
        """Begin an answer; a second one wasn't asked for."""
        if self.is_complete:
            self.is_dirty = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the one header that matters."""
        if len(name) == len(b"retry-after") and name.lower() == b"retry-after" and not self.is_complete:
            self.retry_after = value

    def on_headers_complete(self) -> None:
        """Take the status."""
        if self.is_complete:
            return
        status = self._parser.get_status_code()
        self._interim = status in _CONTINUE and status != _SWITCHING
        if not self._interim:
            self.has_head, self.status = True, status
            self.is_kept = self._parser.should_keep_alive() and status != _SWITCHING

    def on_body(self, part: bytes) -> None:
        """Keep the start of the body, and count the rest."""
        if self.is_complete:
            return
        self._body_bytes_left -= len(part)
        if len(self.body) < ANSWER_BYTES_KEPT:
            self.body += part[: ANSWER_BYTES_KEPT - len(self.body)]

    def on_message_complete(self) -> None:
        """End the answer, unless it was an interim one."""
        if not self._interim:
            self.is_complete = True
        self._interim = False
