"""Which requests of browsers are let through."""

from __future__ import annotations

import pytest

from forebay.api.browser_guard import KnownHosts, check_browser
from forebay.model import Forbidden

KNOWN = KnownHosts("queues.lan", ["queues.example", "localhost:3000"])
CHROMIUM = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)"}


def allowed(*, own_origin: bool = True, **headers: str) -> bool:
    """Whether a request with these headers is let through."""
    named = {name.replace("_", "-").encode(): text.encode() for name, text in headers.items()}
    try:
        check_browser(named, KNOWN, own_origin=own_origin)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1:6632", "whatever", "queues.internal:6632", ""])
@pytest.mark.parametrize("own_origin", [True, False])
def test_programs_go_on_as_they_are(host: str, *, own_origin: bool) -> None:
    assert allowed(host=host, own_origin=own_origin)
    assert allowed(host=host, own_origin=own_origin, user_agent="curl/8.5")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:6632", "[::1]:6632", "localhost:6632", "LOCALHOST", "a.localhost", "queues.lan:6632",
     "queues.example", "10.1.2.3"],
)  # fmt: skip
def test_the_servers_own_page_may_do_everything(host: str) -> None:
    assert allowed(host=host, origin=f"http://{host}", sec_fetch_site="same-origin")
    assert allowed(host=host, sec_fetch_site="same-origin")
    assert allowed(host=host, own_origin=False, **CHROMIUM)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://localhost:8000", "http://127.0.0.1:1", "file://",
     "http://127.0.0.1:6632.evil.example", "http://evil.example#127.0.0.1:6632", "http://[", "javascript:0"],
)  # fmt: skip
def test_a_page_of_another_origin_changes_nothing(origin: str) -> None:
    assert not allowed(host="127.0.0.1:6632", origin=origin)
    assert not allowed(host="127.0.0.1:6632", origin=origin, sec_fetch_site="cross-site")
    assert not allowed(host="localhost:6632", origin=origin, sec_fetch_site="same-site")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
def test_a_form_or_an_image_elsewhere_changes_nothing(site: str) -> None:
    assert not allowed(host="127.0.0.1:6632", sec_fetch_site=site)
    assert allowed(host="127.0.0.1:6632", sec_fetch_site=site, own_origin=False)


@pytest.mark.parametrize(
    "host", ["evil.example:6632", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "["]
)
@pytest.mark.parametrize("own_origin", [True, False])
def test_another_name_that_points_here_neither_reads_nor_changes(host: str, *, own_origin: bool) -> None:
    assert not allowed(host=host, own_origin=own_origin, origin=f"http://{host}")
    assert not allowed(host=host, own_origin=own_origin, sec_fetch_site="same-origin")
    assert not allowed(host=host, own_origin=own_origin, **CHROMIUM)


def test_configured_names_may() -> None:
    assert allowed(host="127.0.0.1:6632", origin="https://queues.example", sec_fetch_site="cross-site")
    assert allowed(host="127.0.0.1:6632", origin="http://localhost:3000", sec_fetch_site="cross-site")
    assert not allowed(host="127.0.0.1:6632", origin="http://localhost:3001", sec_fetch_site="cross-site")
