"""Two relays behind one address: clients go from one to the other, and both send to one destination."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.relay_parts import RelayProcess, Sink, connection, make_body
from tests.chaos.relay_race import FLAGS
from tests.integration.work.steps import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

CLIENTS = 4
PUSHES_EACH_TURN = 30


class Client:
    """Pushes in turn to both relays; what one doesn't answer is pushed to the other, as balancers do."""

    def __init__(self, name: str, relays: Sequence[RelayProcess]) -> None:
        self.name = name
        self.acknowledged: list[tuple[str, int]] = []
        """What was acknowledged, and by which relay, in this order."""
        self.tried: set[str] = set()
        self._relays = relays

    async def run(self, stop: asyncio.Event) -> None:
        """Push until told to stop."""
        number = turn = 0
        while not stop.is_set():
            name = f"{self.name}-{number:06d}"
            self.tried.add(name)
            turn = (turn + 1) % len(self._relays)
            if await self._push(name, self._relays[turn].port):
                self.acknowledged.append((name, turn))
                number += 1

    @staticmethod
    async def _push(name: str, port: int) -> bool:
        body = make_body(name, 1_000)
        try:
            async with connection(port) as (reader, writer):
                writer.write(
                    b"POST /push HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
                return (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"202"
        except (OSError, asyncio.IncompleteReadError):
            return False


async def test_nothing_is_lost_and_each_relay_keeps_the_order_of_its_own(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    stop = asyncio.Event()
    async with Sink() as sink:
        flags = (*FLAGS, "--queue-order", "strict")
        relays = [
            RelayProcess(tmp_path / name, [f"http://127.0.0.1:{sink.port}/in"], *flags) for name in "ab"
        ]
        clients = [Client(f"c{number}", relays) for number in range(CLIENTS)]
        async with relays[0], relays[1]:
            pushing = [asyncio.create_task(client.run(stop)) for client in clients]
            for _ in range(4):
                await _some_more(clients)
                sink.mood = draw.choice(("good", "refusing", "resetting"))
                victim = draw.choice(relays)
                await victim.kill()
                await _some_more(clients)  # by the other one alone
                await victim.start()
            stop.set()
            await asyncio.gather(*pushing)
            sink.mood = "good"
            await sink.until_all({name for client in clients for name, _ in client.acknowledged}, 120)
            assert [await relay.stop() for relay in relays] == [0, 0]
    assert sink.accepted.keys() <= set().union(*(client.tried for client in clients)), "nothing is invented"
    place = {name: number for number, name in enumerate(sink.accepted)}
    for client in clients:
        for turn in range(len(relays)):
            mine = [name for name, by in client.acknowledged if by == turn]
            repeated = {name for name in mine if sink.accepted[name] > 1}
            order = [place[name] for name in mine if name not in repeated]
            assert order == sorted(order)


async def _some_more(clients: Sequence[Client]) -> None:
    wanted = [(client, len(client.acknowledged) + PUSHES_EACH_TURN) for client in clients]
    await until(lambda: all(len(one.acknowledged) >= count for one, count in wanted), "more is pushed", 120)
