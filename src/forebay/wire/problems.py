"""Errors as RFC 9457 problems, and problems as errors: the same exception on both sides of the network."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from forebay.log.seam import VersionConflict
from forebay.log.values import Durable
from forebay.model import (
    Conflict,
    Corrupt,
    ForebayError,
    Full,
    LeaseLost,
    Rejected,
    TooLarge,
    Unavailable,
    UnknownGroup,
    UnknownQueue,
)
from forebay.model import errors as errors_module

TYPE: Final = "urn:forebay:problem:"
"""What the type of every problem begins with; the kind of the error follows."""


class RecordFound(msgspec.Struct, frozen=True):
    """A record, and the version that it is at: 0 where it isn't there."""

    space: str
    key: str
    found: int


class DamageFound(msgspec.Struct, frozen=True):
    """The sequence numbers of the messages that damaged bytes should hold."""

    queue: str | None
    first: int | None
    last: int | None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    """What to do about it."""
    request_id: str | None = None
    retry_after_seconds: float | None = None
    lost: list[str] | None = None
    """Ids of tasks that were no longer yours; what was asked of the others has happened."""
    durable: Durable | None = None
    """Where the outcomes of the others are, if that isn't the log: see the answer without a problem."""
    accepted: int | None = None
    """Messages of a stream that are durable in spite of the problem."""
    record: RecordFound | None = None
    """The record that is not at the version that was expected: nothing was written."""
    damage: DamageFound | None = None
    """Where stored data is damaged."""


def _kinds() -> dict[str, type[ForebayError]]:
    found = {kind.__name__: kind for kind in vars(errors_module).values() if _is_kind(kind)}
    return {_slug(name): kind for name, kind in found.items()}


def _is_kind(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ForebayError)


def _slug(name: str) -> str:
    """The name of an error in lower case with hyphens: `unknown-queue`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


KINDS: Final = _kinds()
_KNOWN: Final = frozenset(KINDS.values())
_TITLES: Final[dict[type[ForebayError], str]] = {
    Rejected: "The request is wrong",
    UnknownQueue: "There is no such queue",
    UnknownGroup: "There is no such group",
    TooLarge: "The request is too large",
    Unavailable: "Out of reach for now",
    Full: "There is no room for now",
    Conflict: "Somebody else was first",
    LeaseLost: "The lease is lost",
    Corrupt: "Stored data is damaged",
}


def problem_of(error: ForebayError, request_id: str | None = None, *, accepted: int | None = None) -> Problem:
    """An error as a problem."""
    kind = next(base for base in type(error).__mro__ if base in _KNOWN)
    title = next((_TITLES[base] for base in kind.__mro__ if base in _TITLES), "Something went wrong")
    ids = getattr(error, "ids", None)
    return Problem(
        type=TYPE + _slug(kind.__name__),
        title=title,
        status=error.status or 500,
        detail=_without_hint(error),
        hint=error.hint,
        request_id=request_id,
        retry_after_seconds=getattr(error, "retry_after_seconds", None),
        lost=None if not ids else [str(id) for id in ids],
        durable="spool" if isinstance(error, LeaseLost) and error.is_spooled else None,
        accepted=accepted,
        record=_record(error),
        damage=_damage(error),
    )


def _record(error: ForebayError) -> RecordFound | None:
    if not isinstance(error, VersionConflict):
        return None
    return RecordFound(error.space, error.key, error.found)


def _damage(error: ForebayError) -> DamageFound | None:
    if not isinstance(error, Corrupt) or error.queue is None:
        return None
    return DamageFound(error.queue, error.first, error.last)


def error_of(problem: Problem) -> ForebayError:
    """The error that a problem was made of."""
    if (record := problem.record) is not None:
        place = {"space": record.space, "key": record.key}
        return VersionConflict(problem.detail, hint=problem.hint, found=record.found, **place)
    if (damage := problem.damage) is not None:
        place_text = str(Corrupt("", queue=damage.queue, first=damage.first, last=damage.last))
        text = problem.detail.removesuffix(place_text)
        return Corrupt(text, hint=problem.hint, queue=damage.queue, first=damage.first, last=damage.last)
    kind = KINDS.get(problem.type.removeprefix(TYPE)) or _kind_for(problem.status)
    details: dict[str, Any] = {"hint": problem.hint}
    if issubclass(kind, Unavailable):
        details["retry_after_seconds"] = problem.retry_after_seconds
    if issubclass(kind, LeaseLost):
        details["ids"] = [int(id) for id in problem.lost or ()]
        details["is_spooled"] = problem.durable == "spool"
    return kind(problem.detail, **details)


def _kind_for(status: int) -> type[ForebayError]:
    if status >= 500 or status in (408, 429):  # noqa: PLR2004 - what the numbers mean is HTTP's to say
        return Unavailable
    return Conflict if status == 409 else Rejected  # noqa: PLR2004 - likewise


def _without_hint(error: ForebayError) -> str:
    text = str(error)
    return text.removesuffix(f"; {error.hint}") if error.hint else text
