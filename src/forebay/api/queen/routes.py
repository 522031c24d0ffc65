"""How routes in Queen's format are declared."""

from __future__ import annotations

from typing import Any

from forebay.api.keys import Scope
from forebay.api.routing import Route, Run


def queen_route(
    method: str,
    path: str,
    run: Run,
    summary: str,
    *,
    scope: Scope | None,
    waits: bool = False,
    bulk: bool = False,
) -> Route:
    """A route in Queen's format: it makes sure of queues itself, and its errors look like Queen's."""
    return Route(
        method,
        path,
        run,
        summary,
        {200: Any},
        scope=scope,
        query=Any,
        checks_queues=True,
        tag="Queen",
        waits=waits,
        bulk=bulk,
        foreign=True,
    )
