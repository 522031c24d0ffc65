"""The description of the API: for programs, and for people."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from forebay.api.answers import Answer, encode_json
from forebay.api.calls import Call
from forebay.api.openapi import document
from forebay.api.routing import Route
from forebay.wire.media import HTML, JSON

_PAGE: Final = Path(__file__).parent.parent / "docs.html"
_PLACE: Final = "/*document*/null"
_POLICY: Final = b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"


async def openapi(_: Call) -> Answer:
    """The OpenAPI document."""
    return Answer(_document(), media=JSON)


async def docs(_: Call) -> Answer:
    """The page that shows it."""
    return Answer(_page(), media=HTML, headers=[(b"content-security-policy", _POLICY)])


@cache
def _document() -> bytes:
    from forebay.api.routes import ROUTES  # noqa: PLC0415 - these routes are among them

    return encode_json(document(ROUTES))


@cache
def _page() -> bytes:
    text = _PAGE.read_text(encoding="utf-8")
    assert text.count(_PLACE) == 1
    return text.replace(_PLACE, _document().decode().replace("<", "\\u003c")).encode()


_TAG: Final = "Server"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/openapi.json",
        openapi,
        "This description",
        {200: dict[str, Any]},
        answer_media=(JSON,),
        tag=_TAG,
    ),
    Route("GET", "/docs", docs, "This description, to read", {200: str}, answer_media=(HTML,), tag=_TAG),
)
