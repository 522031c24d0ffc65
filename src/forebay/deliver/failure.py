"""Failures by class: from the status of an answer or the type of an exception, never from a text.

===================== ============== ================================
answer                class          retried
===================== ============== ================================
2xx                   delivered
408                   timeout        yes
425, 429              rate_limit     yes
5xx                   server_error   yes
401, 403, 407         auth           yes, unless `retry_auth` is off
413                   too_large      no: split
other 4xx, 3xx, 1xx   client_error   no
none in time          timeout        yes
none                  network        yes
===================== ============== ================================

What is retried says that the destination is in trouble, and opens the breaker. A credential that was rotated
is such a trouble: it is wrong for every request, and somebody will correct it.

A redirect is a client_error: it is never followed, since a signed or authenticated request would go to a
place that nobody configured.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from forebay.deliver.values import ANSWER_BYTES_KEPT, ErrorClass, Outcome

__all__ = ["AUTH_STATUSES", "counts_for_breaker", "failed", "of_status"]

AUTH_STATUSES: Final = frozenset((401, 403, 407))
_OF_STATUS: Final = {
    **dict.fromkeys(AUTH_STATUSES, ErrorClass.AUTH),
    408: ErrorClass.TIMEOUT,
    413: ErrorClass.TOO_LARGE,
    425: ErrorClass.RATE_LIMIT,
    429: ErrorClass.RATE_LIMIT,
}
_RETRIED: Final = frozenset(
    {ErrorClass.TIMEOUT, ErrorClass.NETWORK, ErrorClass.RATE_LIMIT, ErrorClass.SERVER_ERROR}
)
_SUCCESS: Final = range(200, 300)
_SERVER_ERROR: Final = 500


def of_status(
    status: int, *, answer: bytes = b"", retry_after_seconds: float | None = None, retries_auth: bool = True
) -> Outcome:
    """The outcome of an answer."""
    answer = answer[:ANSWER_BYTES_KEPT]
    if status in _SUCCESS:
        return Outcome(status, answer=answer)
    kind = _class_of_status(status)
    return Outcome(
        status,
        error_class=kind,
        is_retried=kind in _RETRIED or (retries_auth and kind is ErrorClass.AUTH),
        retry_after_seconds=retry_after_seconds,
        answer=answer,
        reason=f"the destination answered {status} {_phrase(status)}".rstrip(),
    )


def failed(error: BaseException, reason: str | None = None) -> Outcome:
    """The outcome of an attempt that ended with an exception; `reason` describes it, else its own text."""
    kind = ErrorClass.TIMEOUT if isinstance(error, TimeoutError) else ErrorClass.NETWORK
    return Outcome(error_class=kind, is_retried=True, reason=reason or str(error) or type(error).__name__)


def counts_for_breaker(outcome: Outcome) -> bool:
    """Whether it says that the destination is in trouble; what it refuses (4xx) says nothing of the kind."""
    return outcome.is_retried


def _class_of_status(status: int) -> ErrorClass:
    if status >= _SERVER_ERROR:
        return ErrorClass.SERVER_ERROR
    return _OF_STATUS.get(status, ErrorClass.CLIENT_ERROR)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
