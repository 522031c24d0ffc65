"""The error tree: every failure, sorted by what the caller does next.

::

    ForebayError                  never raised itself
    ├── Rejected        400       fix the request; the same request fails again
    │   ├── Unauthorized    401   show a key that is known and valid
    │   ├── Forbidden       403   use a key that may do this
    │   ├── UnknownQueue    404   create the queue, or correct its name
    │   ├── UnknownGroup    404   create the group, or correct its name
    │   └── TooLarge        413   send less at once, or raise the limit
    ├── Unavailable     503       try again after `retry_after_seconds`
    │   ├── TooMany         429   likewise, and ask less often
    │   └── Full            507   likewise, when there is room again
    ├── Conflict        409       someone else was first; read the state again
    │   └── LeaseLost       409   drop the work; another worker has it
    ├── Corrupt         500       quarantine the bytes and page someone
    └── Misconfigured   none      refuse to start; say what and where

Invariants: the metric label is the lower-case name of the branch, so there are five labels and no
more; every error survives pickling with all its attributes.
"""

# ruff: noqa: N818 - the names say what the caller does next, which a suffix would blur

from collections.abc import Sequence
from typing import ClassVar


class ForebayError(Exception):
    """A failure that the caller can act on; `hint` says how."""

    status: ClassVar[int | None] = 500
    label: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Say what went wrong, then what to do about it."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Rejected(ForebayError):
    """The request is wrong and stays wrong: fix it before sending it again."""

    status = 400
    label = "rejected"


class Unauthorized(Rejected):
    """No valid key or JWT came with the request.

    Of a key the text is the same whatever the reason, so that nobody learns which keys exist; of a JWT it
    says what is wrong. `reason` is for counters and logs: missing, malformed, unknown, revoked, expired ...
    """

    status = 401

    def __init__(self, message: str, *, hint: str | None = None, reason: str = "unknown") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class Forbidden(Rejected):
    """The key is valid, but may not do this: it lacks a scope, or is for other queues."""

    status = 403


class UnknownQueue(Rejected):
    """No queue has this name or number."""

    status = 404


class UnknownGroup(Rejected):
    """The queue has no group of this name."""

    status = 404


class TooLarge(Rejected):
    """A part of the request is over its limit."""

    status = 413


class Unavailable(ForebayError):
    """Something needed is out of reach for now: the same request may succeed later."""

    status = 503
    label = "unavailable"

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class TooMany(Unavailable):
    """This key asks more often than it may: the same request succeeds later."""

    status = 429


class Full(Unavailable):
    """There is no room to keep this, and nothing of it was kept: the same request succeeds with the space."""

    status = 507


class Conflict(ForebayError):
    """The state has moved on: a lease was lost, or the same thing was done before."""

    status = 409
    label = "conflict"


class LeaseLost(Conflict):
    """The lease has expired or its token is stale: the message belongs to another worker.

    `ids` are the messages that it was about. `in_doubt`: an earlier attempt of the same call may have settled
    some of them, and nobody could be asked. `is_spooled`: what was said of the others of the same call waits
    in a spool for the log.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        ids: Sequence[int] = (),
        in_doubt: bool = False,
        is_spooled: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.ids = ids
        self.in_doubt = in_doubt
        self.is_spooled = is_spooled


class Corrupt(ForebayError):
    """Stored bytes are not what was written.

    `queue`, `first` and `last` say where: the sequence numbers of the messages they should hold.

    Whoever knows the place fills it in: `queue`, `first` and `last` may be set after the error was
    made.
    """

    status = 500
    label = "corrupt"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        queue: str | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.queue = queue
        self.first = first
        self.last = last

    def __str__(self) -> str:
        """Say what is damaged, where it was found, and what to do about it."""
        place = "" if self.queue is None else f" in queue {self.queue!r}"
        if self.first is not None:
            place += f" at messages {self.first} to {self.first if self.last is None else self.last}"
        return f"{self.message}{place}; {self.hint}" if self.hint else f"{self.message}{place}"


class Misconfigured(ForebayError):
    """The settings cannot work: nothing starts until they are corrected.

    `key` is the setting at fault, within the section that found it, where it is one setting.
    """

    status = None
    label = "misconfigured"

    def __init__(self, message: str, *, hint: str | None = None, key: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key
