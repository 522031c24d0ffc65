"""Two servers keep their promises while database, Valkey and they themselves come and go, all in one run."""

import pytest

from tests.chaos.servers_race import race
from tests.servers import ServerUnavailableError, absent

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 25.0


async def test_what_producers_and_workers_saw_holds_whatever_happens(seed: int) -> None:
    try:
        counts, problems = await race(seed, SECONDS)
    except ServerUnavailableError as error:
        absent(str(error))
    assert not problems, "\n".join([f"seed {seed}: {dict(counts)}", *problems[:40]])
    assert counts["settled"], "the load has done nothing"
