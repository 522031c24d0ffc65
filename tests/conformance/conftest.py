"""The fixtures of the conformance suite: a rig per implementation, whose books must balance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.remote import HttpRig, LogServer
from tests.conformance.rigs import DURABLE_NAMES, NAMES, REMOTE_NAMES, Rig, make_rig
from tests.conformance.steps import check_ledger
from tests.servers import PostgresServer


@pytest.fixture(scope="session")
def rig_database(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the address of one database for all rigs; each wipes it before use."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def log_server() -> Iterator[LogServer]:
    """Give one server for all rigs that are remote."""
    server = LogServer()
    server.start()
    yield server
    server.stop()


async def _opened(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    rig = (
        HttpRig(request.getfixturevalue("log_server"))
        if name in REMOTE_NAMES
        else make_rig(name, tmp_path, request.getfixturevalue)
    )
    await rig.fresh()
    try:
        yield rig
        if rig.is_open:
            await check_ledger(rig.log)
    finally:
        await rig.close()


@pytest.fixture(params=(*NAMES, *REMOTE_NAMES))
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give each implementation in turn; its ledger must balance when the test ends."""
    async for opened in _opened(request.param, tmp_path, request):
        yield opened


@pytest.fixture(params=DURABLE_NAMES)
async def durable_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give each implementation that survives its process; its ledger must balance."""
    async for opened in _opened(request.param, tmp_path, request):
        yield opened
