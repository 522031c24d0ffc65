"""The stores that workers are tested on: in memory, a SQLite file, a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import forebay
from forebay.model import mint
from forebay.store.seam import Store


@pytest.fixture(params=["memory", "sqlite", "http"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Give each kind of store in turn."""
    if request.param == "memory":
        url = "memory://"
    elif request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/tasks.db"
    else:
        url = request.getfixturevalue("forebay_server").url
    async with forebay.open(url) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    """Give a store in memory."""
    async with forebay.open("memory://") as opened:
        yield opened


@pytest.fixture
def queue() -> str:
    """Give a name that no other test uses."""
    return f"q{mint().hex()}"
