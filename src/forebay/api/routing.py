"""The table of routes: what is served, by whom, and what it looks like. The OpenAPI document is made from it.

Invariants: a path has at most one route per method; finding a route costs as much as the path has parts. A
part of a path may hold anything but a slash, unless that is encoded; foreign clients don't encode it, so what
is found nowhere is looked for among foreign routes once more, with names that may have slashes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from forebay.api.keys import Scope
from forebay.model import Rejected
from forebay.wire.media import JSON, MSGPACK

if TYPE_CHECKING:
    from forebay.api.answers import Answer
    from forebay.api.calls import Call

_LOOSE_BYTES_MAX: Final = 4_096
"""So that nobody has us try for long where one name ends and the next begins."""
Run = Callable[["Call"], Awaitable["Answer"]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    """With parameters in braces: `/v1/queues/{queue}`."""
    run: Run
    summary: str
    answers: Mapping[int, Any]
    """The form of the answer by status, None for one without a body."""
    scope: Scope | None = None
    """What a key must be allowed to; None for everybody."""
    query: Any = None
    """The form of the query."""
    body: Any = None
    """The form of the body."""
    body_is_optional: bool = False
    media: Sequence[str] = (JSON, MSGPACK)
    """In which encodings a body may come."""
    answer_media: Sequence[str] = (JSON, MSGPACK)
    problems: Sequence[int] = ()
    """Statuses of problems, besides those that every route has."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request that matter, and what they mean."""
    checks_queues: bool = False
    """It makes sure itself that the key is for the queues that it is about."""
    tag: str = ""
    waits: bool = False
    """It may take as long as its caller is willing to wait."""
    bulk: bool = False
    """It changes nothing, has no body, and answers much: it runs when there is room for its answer."""
    foreign: bool = False
    """It speaks another server's format, and isn't part of our own OpenAPI document."""


class NoRoute(Rejected):
    """Nothing is served at this path."""

    status = 404


class WrongMethod(Rejected):
    """The path is served, but not with this method."""

    status = 405

    def __init__(self, message: str, *, hint: str | None = None, allowed: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.allowed = allowed


class _Node:
    __slots__ = ("any", "methods", "parts")

    def __init__(self) -> None:
        self.parts: dict[bytes, _Node] = {}
        self.any: _Node | None = None
        self.methods: dict[str, tuple[Route, tuple[str, ...]]] = {}


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in routes:
            self._add(route)
        foreign = [route for route in routes if route.foreign and "{" in route.path]
        # The one with more words of its own first: it says more.
        foreign.sort(key=lambda route: (-len(route.path.split("/")), route.path))
        self._loose = [(_loosely(route.path), route) for route in foreign]

    def _add(self, route: Route) -> None:
        node, names = self._root, list[str]()
        for part in route.path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.parts.setdefault(part.encode(), _Node())
        assert route.method not in node.methods, f"{route.method} {route.path} is there twice"
        node.methods[route.method] = (route, tuple(names))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route of a request, and the parameters in its path; each part is decoded by itself."""
        node: _Node | None = self._root
        values: list[bytes] = []
        for part in raw_path.strip(b"/").split(b"/"):
            assert node is not None
            following = node.parts.get(part)
            if following is None:
                following = node.any
                values.append(part)
            node = following
            if node is None:
                return self._find_loosely(method, raw_path)
        assert node is not None
        if not node.methods:
            return self._find_loosely(method, raw_path)
        found = node.methods.get(method)
        if found is None and method == "HEAD":
            found = node.methods.get("GET")
        if found is None:
            allowed = sorted({*node.methods, *(["HEAD"] if "GET" in node.methods else [])})
            text = f"{method} is not for this path"
            raise WrongMethod(text, hint=f"use {' or '.join(allowed)}", allowed=allowed)
        route, names = found
        return route, {name: _decoded(value) for name, value in zip(names, values, strict=True)}

    def _find_loosely(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The foreign route of a path in which a name has slashes."""
        for pattern, route in self._loose if len(raw_path) <= _LOOSE_BYTES_MAX else ():
            if route.method == method and (found := pattern.fullmatch(raw_path)) is not None:
                return route, {name: _decoded(value) for name, value in found.groupdict().items()}
        raise _no_route(raw_path)


def _loosely(path: str) -> re.Pattern[bytes]:
    """A path whose parameters may have slashes."""
    parts = [f"(?P<{p[1:-1]}>.+)" if p.startswith("{") else re.escape(p) for p in path.split("/")]
    return re.compile("/".join(parts).encode())


def _decoded(part: bytes) -> str:
    raw = unquote_to_bytes(part) if b"%" in part else part
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Rejected("the path is not UTF-8", hint="percent-encode names as UTF-8") from None


def _no_route(raw_path: bytes) -> NoRoute:
    text = f"nothing is served at {raw_path[:100].decode(errors='replace')!r}"
    return NoRoute(text, hint="see /openapi.json, or /docs in a browser")
