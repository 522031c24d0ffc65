"""The fixtures of the store's suite: every log with every warm tier; books must balance at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.model import mint
from forebay.store.seam import Store
from tests.conformance.conftest import _opened
from tests.conformance.rigs import DURABLE_NAMES
from tests.conformance.store.rigs import PAIRS, RIGS, SHARED_LOGS, StoreRig, rig_name


async def _rig(
    log: str, warm: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[StoreRig]:
    http = warm == "http"
    url = request.getfixturevalue("valkey_url") if warm == "valkey" else None
    async for log_rig in _opened(log, tmp_path, request):
        rig = StoreRig(log_rig, url, mint().hex(), http=http)
        try:
            yield rig
        finally:
            await rig.close()


@pytest.fixture
def no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody be woken by the rounds of stores that are opened from now on."""
    for name in ("TICK_SECONDS", "SHARED_TICK_SECONDS"):
        monkeypatch.setattr(f"forebay.store.rounds.{name}", 1e9)


@pytest.fixture(params=RIGS, ids=rig_name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreRig]:
    """Give each log with each tier in turn, and over HTTP, with one store open."""
    log, warm = request.param
    async for made in _rig(log, warm, tmp_path, request):
        await made.open()
        yield made


@pytest.fixture(params=PAIRS, ids="-".join)
async def embedded_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreRig]:
    """Give each log with each tier in turn, with one store open in this process."""
    log, warm = request.param
    async for made in _rig(log, warm, tmp_path, request):
        await made.open()
        yield made


@pytest.fixture(params=[pair for pair in PAIRS if pair[0] in DURABLE_NAMES], ids="-".join)
async def durable_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreRig]:
    """Give each log that survives its process with each tier, with one store open."""
    log, warm = request.param
    async for made in _rig(log, warm, tmp_path, request):
        await made.open()
        yield made


@pytest.fixture(params=SHARED_LOGS)
async def shared_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreRig]:
    """Give each log with a tier that servers share, with one store open."""
    async for made in _rig(request.param, "valkey", tmp_path, request):
        await made.open()
        yield made


@pytest.fixture
def store(rig: StoreRig) -> Store:
    """Give the store of the rig."""
    return rig.store
