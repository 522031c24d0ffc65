"""A server for the tests of a module; each of them has a queue of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.queen.steps import Asker
from tests.servers import ForebayServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give one server."""
    with ForebayServer() as server:
        yield server


@pytest.fixture
def asker(server: ForebayServer) -> Asker:
    """Give somebody who asks it."""
    return Asker(server)
