"""A server on each log, and the clients that drive it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.queen.packages import VERSIONS, package
from tests.servers import ForebayServer, PostgresServer


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[ForebayServer]:
    """Give one server for the tests of a module; each of them has queues of its own."""
    if request.param == "sqlite":
        with ForebayServer() as server:
            yield server
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    dsn = postgres.create_database()
    try:
        with ForebayServer(dsn) as server:
            yield server
    finally:
        postgres.drop_database(dsn)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Say which client it is."""
    found: str = request.param
    return found


@pytest.fixture
async def queen(server: ForebayServer, version: str) -> AsyncIterator[Any]:
    """Give a client of that version."""
    async with package(version).Queen(server.url) as client:
        yield client


@pytest.fixture
def name() -> Callable[[str], str]:
    """Make names that no other test has."""
    suffix = uuid4().hex[:8]
    return lambda text: f"{text}-{suffix}"
