"""A relay that is killed under load loses nothing that it acknowledged."""

from pathlib import Path

import pytest

from tests.chaos.relay_race import race

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]


async def test_nothing_acknowledged_is_lost_over_kills(tmp_path: Path, seed: int) -> None:
    print(await race(tmp_path, 4, seed))
