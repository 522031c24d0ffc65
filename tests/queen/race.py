"""A race of Queen's clients: producers and consumers over few or many partitions, counted by transaction id.

`python -m tests.queen.race --seconds 60` runs it for 1, 10, 100 and 10,000 partitions, and says for each what
was pushed and what came. A run is right when nothing is lost, nothing comes twice, each producer's messages
come in its order within a partition, and a partition is never with two consumers at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from tests.queen.packages import VERSIONS, package
from tests.servers import ForebayServer

WORKERS: Final = 16
PARTITIONS: Final = (1, 10, 100, 10_000)
_PATIENCE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Race:
    """What was pushed, what came, and what was wrong with it."""

    partitions: int
    pushed: set[str] = field(default_factory=set)
    """The transaction ids of what was answered `queued`."""
    came: dict[str, int] = field(default_factory=dict)
    """How often each transaction id came."""
    last: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last number that came, by producer and partition."""
    busy: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def take(self, messages: list[Any]) -> None:
        """Look at what one pop brought."""
        for message in messages:
            data, partition = message["data"], message["partition"]
            id = message["transactionId"]
            self.came[id] = self.came.get(id, 0) + 1
            if self.came[id] > 1:
                self.faults.append(f"{id} came {self.came[id]} times")
            key = (data["producer"], partition)
            if data["number"] <= self.last.get(key, -1):
                self.faults.append(f"{key}: {data['number']} came after {self.last[key]}")
            self.last[key] = data["number"]

    @property
    def is_over(self) -> bool:
        """Whether everything that was pushed has come."""
        return len(self.came) >= len(self.pushed)

    def report(self) -> list[str]:
        """All faults, with what is missing and what nobody pushed."""
        missing = self.pushed - self.came.keys()
        strange = self.came.keys() - self.pushed
        faults = list(self.faults)
        if missing:
            faults.append(f"{len(missing)} of {len(self.pushed)} are lost, such as {min(missing)}")
        if strange:
            faults.append(f"{len(strange)} came that nobody was told are there, such as {min(strange)}")
        return faults


async def run(url: str, partitions: int, seconds: float, version: str, seed: int) -> Race:
    """One race."""
    race, queue, chance = Race(partitions), f"race-{uuid4().hex}", random.Random(seed)
    end = monotonic() + seconds
    done = asyncio.Event()
    async with package(version).Queen(url) as client:
        await client.queue(queue).config({"lease_time": 300}).create()
        consumers = [asyncio.create_task(_consume(client, queue, race, done, chance)) for _ in range(WORKERS)]
        await asyncio.gather(
            *(_produce(client, queue, race, number, end=end, chance=chance) for number in range(WORKERS))
        )
        late = monotonic() + _PATIENCE_SECONDS + seconds
        while not race.is_over and monotonic() < late and not race.faults:
            await asyncio.wait(consumers, timeout=0.1)
        done.set()
        await asyncio.gather(*consumers)
        await client.queue(queue).delete()
    return race


async def _produce(
    client: Any, queue: str, race: Race, producer: int, *, end: float, chance: random.Random
) -> None:
    numbers: dict[str, int] = {}
    while monotonic() < end:
        partition = f"p{chance.randrange(race.partitions)}"
        items = []
        for _ in range(chance.choice((1, 1, 5, 20))):
            number = numbers[partition] = numbers.get(partition, -1) + 1
            data = {"producer": producer, "number": number}
            items.append({"data": data, "transactionId": f"{producer}-{partition}-{number}"})
        results = await client.queue(queue).partition(partition).push(items)
        for result in results:
            if result["status"] != "queued":
                race.faults.append(f"{result['transaction_id']} was answered {result['status']}")
            race.pushed.add(result["transaction_id"])


async def _consume(client: Any, queue: str, race: Race, done: asyncio.Event, chance: random.Random) -> None:
    while not done.is_set():
        popping = client.queue(queue).batch(chance.choice((1, 10, 100))).partitions(chance.choice((1, 5, 20)))
        messages = await popping.wait(True).timeout_millis(500).pop()
        if not messages:
            continue
        mine = {message["partition"] for message in messages}
        if both := mine & race.busy:
            race.faults.append(f"two consumers had {min(both)}")
        race.busy |= mine
        race.take(messages)
        await asyncio.sleep(0)
        race.busy -= mine
        answer = await client.ack(messages, True)
        bad = [result for result in answer.get("results", ()) if not result["success"]]
        if bad or not answer["success"]:
            race.faults.append(f"an acknowledgement failed: {bad[:1] or answer}")


async def _main(arguments: argparse.Namespace) -> int:
    bad = False
    for store in arguments.store:
        with ForebayServer(store or None) as server:
            for partitions in arguments.partitions:
                race = await run(server.url, partitions, arguments.seconds, arguments.client, arguments.seed)
                faults = race.report()
                counts = f"{len(race.pushed)} pushed, {len(race.came)} came"
                verdict = faults[:3] if faults else "right"
                print(f"{store or 'sqlite'}, {partitions} partitions: {counts}; {verdict}")  # noqa: T201
                bad = bad or bool(faults)
    return int(bad)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.queen.race")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--partitions", type=int, nargs="*", default=list(PARTITIONS))
    parser.add_argument("--client", choices=VERSIONS, default=VERSIONS[0])
    parser.add_argument("--store", nargs="*", default=[""], help="addresses of logs; SQLite by default")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    sys.exit(asyncio.run(_main(parser.parse_args())))
