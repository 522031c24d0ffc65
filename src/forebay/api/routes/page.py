"""The page that people keep open, and what it lives on: everything at one moment, and the last minutes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from forebay.api.answers import Answer, Header, Stream
from forebay.api.calls import Call
from forebay.api.overview import Overview, Plots
from forebay.api.routing import NoRoute, Route
from forebay.wire.media import HTML

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_MEDIA: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_EVENTS: Final = "text/event-stream"


async def page(_: Call) -> Answer:
    """The page."""
    return Answer(_files()["index.html"], media=HTML, headers=_HEADERS)


async def asset(call: Call) -> Answer:
    """A file that the page is made of."""
    name = call.params["file"]
    media = _MEDIA.get(name.rpartition(".")[2])
    if media is None or name not in _files():
        raise NoRoute(f"the page has no file {name[:100]!a}", hint="reload the page: it may be an older one")
    return Answer(_files()[name], media=media, headers=_HEADERS)


async def overview(call: Call) -> Answer:
    """Everything at one moment."""
    return Answer(await call.context.overview.overview())


async def plots(call: Call) -> Answer:
    """The last minutes of all groups."""
    return Answer(call.context.overview.plots())


async def events(call: Call) -> Answer:
    """Everything, again and again."""
    source = call.context.overview
    source.check_room()
    return Stream(source.events(lambda: call.is_gone), _EVENTS)


@cache
def _files() -> dict[str, bytes]:
    folder = files("forebay.api.page").iterdir()
    return {file.name: file.read_bytes() for file in folder if not file.name.startswith("__")}


_TAG: Final = "Page"

ROUTES: Final[tuple[Route, ...]] = (
    *(
        Route("GET", path, page, "The page to look at queues", {200: str}, answer_media=(HTML,), tag=_TAG)
        for path in ("/", "/queue-metrics", "/metrics/queues")
    ),
    Route(
        "GET",
        "/page/{file}",
        asset,
        "A file that the page is made of",
        {200: str},
        answer_media=tuple(_MEDIA.values()),
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/overview",
        overview,
        "Everything that the page shows, at one moment",
        {200: Overview},
        scope="read",
        bulk=True,
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/overview/plots",
        plots,
        "Rates and backlog of all groups over the last minutes",
        {200: Plots},
        scope="read",
        bulk=True,
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/overview/events",
        events,
        "The overview as server-sent events, every few seconds; up to 100 may listen",
        {200: str},
        scope="read",
        answer_media=(_EVENTS,),
        waits=True,
        tag=_TAG,
    ),
)
