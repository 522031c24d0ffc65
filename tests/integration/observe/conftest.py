"""What tests of metrics share: all programs, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.observe.fleet import Fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Give all programs at work, with all names; nobody stops one of them."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made
