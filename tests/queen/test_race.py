"""Producers and consumers that race, on both logs: none lost, none twice, in order."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.queen.packages import VERSIONS
from tests.queen.race import PARTITIONS, Race, run
from tests.servers import ForebayServer

SECONDS: Final = 3.0


@pytest.mark.slow
@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_nothing_is_lost_or_comes_twice_or_out_of_order(server: ForebayServer, partitions: int) -> None:
    version = VERSIONS[partitions > PARTITIONS[1]]
    race = await run(server.url, partitions, SECONDS, version, random.randrange(1 << 32))
    assert race.report() == []
    assert race.pushed


def _message(producer: int, partition: str, number: int) -> dict[str, object]:
    data = {"producer": producer, "number": number}
    return {"data": data, "partition": partition, "transactionId": f"{producer}-{partition}-{number}"}


def test_the_race_tells_what_is_wrong() -> None:
    race = Race(1)
    race.pushed = {"1-p-0", "1-p-1", "1-p-2"}
    race.take([_message(1, "p", 1), _message(1, "p", 0), _message(1, "p", 0), _message(2, "q", 7)])
    told = "\n".join(race.report())
    for word in ("came after", "came 2 times", "are lost", "nobody was told"):
        assert word in told
