"""The fixtures of the suite of the warm tier: a rig per implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.warm.rigs import NAMES, MemoryRig, ValkeyRig, WarmRig


def make_rig(name: str, request: pytest.FixtureRequest) -> WarmRig:
    """The rig of that name; the server is started only where it is needed."""
    return MemoryRig() if name == "memory" else ValkeyRig(request.getfixturevalue("valkey_server").url)


@pytest.fixture(params=NAMES)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[WarmRig]:
    """Give each implementation in turn."""
    rig = make_rig(request.param, request)
    await rig.fresh()
    try:
        yield rig
    finally:
        await rig.close()


@pytest.fixture
async def valkey_rig(request: pytest.FixtureRequest) -> AsyncIterator[ValkeyRig]:
    """Give the implementation that several servers share."""
    rig = ValkeyRig(request.getfixturevalue("valkey_server").url)
    await rig.fresh()
    try:
        yield rig
    finally:
        await rig.close()
