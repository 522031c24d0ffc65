"""The errors of a FastQueue, in the words of our error tree."""

from typing import Final

from forebay.disk import is_full
from forebay.model import Full, Rejected, Unavailable
from forebay.model.quantity import format_bytes

_RETRY_SECONDS: Final = 1.0


class DiskFull(Full):
    """The disk has no space left; the limits of the queue aren't reached."""


def error_of(error: OSError, what: str) -> Unavailable:
    """The error that callers get; `what` could not be done to the queue."""
    said = error.strerror or str(error)
    if is_full(error):
        return DiskFull(
            f"the queue can't be {what}: {said}",
            hint="free some space on its disk; what it holds is safe",
            retry_after_seconds=_RETRY_SECONDS,
        )
    return Unavailable(
        f"the queue can't be {what}: {said}", hint="look at its disk", retry_after_seconds=_RETRY_SECONDS
    )


def count_error(limit: int) -> Full:
    """The queue has as many blocks as it may have."""
    return Full(
        f"the queue has no room for more than {limit} blocks",
        hint="wait until some are delivered, or raise max_size",
        retry_after_seconds=_RETRY_SECONDS,
    )


def size_error(limit: int) -> Full:
    """The queue has as many bytes as it may have."""
    return Full(
        f"the queue has no room for more than {format_bytes(limit)}",
        hint="wait until some are delivered, or raise max_bytes",
        retry_after_seconds=_RETRY_SECONDS,
    )


def closed_error() -> Unavailable:
    """The queue was closed."""
    return Unavailable("the queue is closed", hint="open it again")


def unread_error(sequence: int) -> Rejected:
    """A number that wasn't handed out since the queue was opened."""
    return Rejected(f"block {sequence} was not read", hint="use numbers of records that `read` returned")
