"""What the system says of a disk, in the words of our errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from forebay.disk import is_full
from forebay.model import Full, Unavailable

_RETRY_SECONDS: Final = 1.0


class DiskFault(Unavailable):
    """What is spooled can't be got at: the disk fails, which says nothing of the log."""


def error_of(error: OSError, what: str = "written") -> Unavailable:
    """The error that callers get; `what` could not be done to the spool."""
    said = error.strerror or str(error)
    if is_full(error):
        return Full(
            f"the spool can't be {what}: {said}",
            hint="free some space on its disk; what it holds is safe",
            retry_after_seconds=_RETRY_SECONDS,
        )
    return Unavailable(
        f"the spool can't be {what}: {said}", hint="look at its disk", retry_after_seconds=_RETRY_SECONDS
    )


def cap_error(bytes_max: int) -> Full:
    """The error that callers get when the spool has as much as it may have."""
    return Full(
        f"the spool has no room left of the {bytes_max} bytes that it may take",
        hint="wait until some of it is replayed, or raise total_bytes_max",
        retry_after_seconds=_RETRY_SECONDS,
    )


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise our errors in place of the system's."""
    try:
        yield
    except OSError as error:
        said = error_of(error, what)
        raise DiskFault(said.message, hint=said.hint, retry_after_seconds=_RETRY_SECONDS) from error
