"""When a message that came back too often is given up, and what is said of it. Pure functions."""

from __future__ import annotations

from typing import Final

import msgspec

from forebay.log.values import QueueSettings
from forebay.model import Message

NO_ANSWER: Final = "no answer"
"""The reason of a message that came back because its lease expired."""


def is_last(attempts: int, settings: QueueSettings) -> bool:
    """Whether a message that came back so often may not come back again."""
    return settings.retries_max is not None and attempts >= settings.retries_max


def last_words(attempts: int, reason: str) -> str:
    """Why a message is given up after so many returns, the last of them for a reason."""
    said = f"failed {attempts + 1} times" if attempts else "failed once"
    return f"{said}: {reason}" if reason else said


def without_start(message: Message) -> Message:
    """The message as a dead letter keeps it: one that is handed out again begins at once."""
    return msgspec.structs.replace(message, start_time=None)
