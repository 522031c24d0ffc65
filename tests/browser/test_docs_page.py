"""The page that shows the API, in a real browser."""

from collections.abc import AsyncIterator

import pytest

from forebay.api.routes import ROUTES
from tests.browser.chromium import Page, open_page
from tests.servers import ForebayServer

SEEN = "[...document.querySelectorAll('main section')].filter((s) => s.offsetHeight).map((s) => s.id)"
LINKS = "[...document.querySelectorAll('nav a')].filter((a) => a.offsetHeight).map((a) => a.hash.slice(1))"


@pytest.fixture
async def page(forebay_server: ForebayServer) -> AsyncIterator[Page]:
    """Give the page, loaded."""
    async with open_page() as page:
        await page.size(1280, 900)
        await page.go(f"{forebay_server.url}/docs")
        yield page


async def test_every_route_is_shown_and_nothing_fails(page: Page, forebay_server: ForebayServer) -> None:
    titles = await page.value("[...document.querySelectorAll('main h3')].map((h) => h.textContent)")
    assert sorted(titles) == sorted(route.method + route.path for route in ROUTES if not route.foreign)
    assert await page.value(LINKS) == await page.value(SEEN)
    commands = await page.value("[...document.querySelectorAll('main h3 ~ pre')].map((p) => p.textContent)")
    assert any(command.startswith(f"curl {forebay_server.url}/healthz") for command in commands)
    assert not [command for command in commands if "undefined" in command or "{queue}" in command]
    assert page.errors == []


async def test_a_search_leaves_what_has_all_its_words(page: Page) -> None:
    all_of_them = await page.value(SEEN)
    await page.value("document.getElementById('search').focus()")
    await page.type("redrive dead")
    found = await page.value(SEEN)
    assert 0 < len(found) < len(all_of_them) / 2
    assert await page.value(LINKS) == found
    texts = await page.value(
        "[...document.querySelectorAll('main section:not([hidden])')].map((s) => s.textContent)"
    )
    assert all("redrive" in text.lower() for text in texts)
    await page.value("document.getElementById('search').select()")
    await page.type("no such word anywhere")
    assert await page.value(SEEN) == []
    assert await page.value("document.getElementById('nothing').offsetHeight") > 0
    assert page.errors == []


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 800)])
async def test_nothing_is_wider_than_the_window(page: Page, width: int, height: int) -> None:
    await page.size(width, height)
    assert await page.value("document.documentElement.scrollWidth") <= width
    assert len(await page.picture()) > 10_000
