"""What tests of metrics share: all programs, started once, and a Prometheus for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.observe.fleet import Fleet
from tests.servers import ServerUnavailableError, absent, promtool


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Give all programs at work, with all names; nobody stops one of them."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def prometheus_is_installed() -> None:
    """Skip, or fail in CI, where there is no Prometheus."""
    try:
        promtool("--version", directory=Path.cwd())
    except ServerUnavailableError as error:
        absent(str(error))
