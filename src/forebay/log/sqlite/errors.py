"""What SQLite's errors mean to the caller: no error of its own crosses the seam.

Invariant: an error that stands for a bug (a broken constraint, bad SQL) becomes an assertion.
"""

from pathlib import Path
from typing import Final

import apsw

from forebay.model import Corrupt, Misconfigured, Unavailable

RETRY_SECONDS: Final = 1.0

_OUT_OF_REACH: Final[tuple[tuple[type[apsw.Error], str, str], ...]] = (
    (apsw.BusyError, "is locked by another process", "find what holds it, or try again"),
    (apsw.LockedError, "is locked by another process", "find what holds it, or try again"),
    (apsw.FullError, "has no room left", "free some disk space"),
    (apsw.ReadOnlyError, "can't be written", "check its permissions and the mount"),
    (apsw.PermissionsError, "can't be used", "check its permissions"),
    (apsw.CantOpenError, "can't be opened", "check that it is there, and its permissions"),
    (apsw.IOError, "can't be read or written", "check the disk"),
    (apsw.NoMemError, "needs more memory than there is", "free some memory"),
    (apsw.InterruptError, "was interrupted", "try again"),
)
_UNREADABLE: Final = (apsw.CorruptError, apsw.NotADBError)


def translate(error: apsw.Error, path: Path) -> Exception:
    """Return the error to raise in place of one of SQLite's."""
    if isinstance(error, _UNREADABLE):
        return Corrupt(f"the log {path} is damaged: {error}", hint="keep the file, and restore a copy")
    for kind, text, hint in _OUT_OF_REACH:
        if isinstance(error, kind):
            return Unavailable(
                f"the log {path} {text} ({error})", hint=hint, retry_after_seconds=RETRY_SECONDS
            )
    return AssertionError(f"the log {path}: {type(error).__name__}: {error}")


def closed(path: Path) -> Unavailable:
    """Return the error for a log that is not open."""
    return Unavailable(f"the log {path} is closed", hint="open it again")


def not_a_log(path: Path, reason: str) -> Misconfigured:
    """Return the error for a file that belongs to somebody else; it is left as it was."""
    return Misconfigured(f"{path} is not a log: {reason}", hint="give the path of a log, or of a new file")


def newer_schema(path: Path, found: int, known: int) -> Misconfigured:
    """Return the error for a log of a later version; it is left as it was."""
    return Misconfigured(
        f"{path} was made by a newer Forebay: schema {found}, this one knows {known}",
        hint="upgrade Forebay",
    )
