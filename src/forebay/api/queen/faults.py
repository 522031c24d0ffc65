"""What Queen's clients are told when something is wrong, and what browsers are told before they ask."""

from __future__ import annotations

from typing import Any, Final

from forebay.api.answers import Answer, Header
from forebay.wire.problems import Problem

_PREFIXES: Final = (b"/api/v1/", b"/streams/v1/")
ANY_ORIGIN: Final[tuple[Header, ...]] = ((b"access-control-allow-origin", b"*"),)
_PREFLIGHT: Final[tuple[Header, ...]] = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"*, authorization, content-type"),
    (b"access-control-max-age", b"86400"),
)


def is_foreign(raw_path: bytes) -> bool:
    """Whether a path is one of Queen's."""
    return raw_path.startswith(_PREFIXES)


def preflight() -> Answer:
    """The answer to a browser that asks whether a page of another origin may call."""
    return Answer({}, headers=_PREFLIGHT)


def fault(problem: Problem) -> dict[str, Any]:
    """A problem as Queen writes it, with what ours says beside."""
    return {"error": problem.detail, "hint": problem.hint, "requestId": problem.request_id}
