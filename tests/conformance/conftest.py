"""The fixtures of the conformance suite: a rig per implementation, whose books must balance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.rigs import DURABLE_NAMES, NAMES, Rig, make_rig
from tests.conformance.steps import check_ledger
from tests.servers import PostgresServer


@pytest.fixture(scope="session")
def rig_database(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the address of one database for all rigs; each wipes it before use."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


async def _opened(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    def dsn() -> str:
        address: str = request.getfixturevalue("rig_database")
        return address

    rig = make_rig(name, tmp_path, dsn)
    await rig.fresh()
    try:
        yield rig
        if rig.is_open:
            await check_ledger(rig.log)
    finally:
        await rig.close()


@pytest.fixture(params=NAMES)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give each implementation in turn; its ledger must balance when the test ends."""
    async for opened in _opened(request.param, tmp_path, request):
        yield opened


@pytest.fixture(params=DURABLE_NAMES)
async def durable_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """Give each implementation that survives its process; its ledger must balance."""
    async for opened in _opened(request.param, tmp_path, request):
        yield opened
