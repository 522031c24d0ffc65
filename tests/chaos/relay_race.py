"""Kills of a relay under load, round after round: nothing acknowledged is lost, nothing invented.

`make race-relay` runs a hundred rounds. In each, pushers push while the destination changes its mood, and the
relay is killed with -9 in the middle. Before some of them it is also stopped in order under the same load. In
the end everything that was acknowledged has arrived, and how much of it twice is said.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import get_args

from tests.chaos.relay_parts import Mood, Pushers, RelayProcess, Sink

PUSHERS = 8
FLAGS = (
    "--queue-retry-interval", "10ms", "--queue-max-retry-delay", "200ms", "--queue-max-size", "1000000",
    "--queue-circuit-breaker-reset-timeout", "100ms", "--queue-chunk-size", "64Ki",
    "--send-seconds", "2s", "--shutdown-seconds", "1s",
)  # fmt: skip


async def race(folder: Path, rounds: int, seed: int) -> str:
    """Race so many rounds; raises where a promise is broken, else says what was seen."""
    draw = random.Random(seed)
    pushers = Pushers(draw)
    kills = 0
    async with Sink() as sink:
        relay = RelayProcess(folder, [f"http://127.0.0.1:{sink.port}/in"], *FLAGS)
        for _ in range(rounds):
            await relay.start()
            if draw.random() < 0.2:
                tasks = await _one_round(relay, sink, pushers, draw)
                assert await relay.stop() == 0
                await asyncio.gather(*tasks)
                await relay.start()
            tasks = await _one_round(relay, sink, pushers, draw)
            await relay.kill()
            kills += 1
            await asyncio.gather(*tasks)
        sink.mood = "good"
        async with relay:
            await sink.until_all(pushers.acknowledged, 120)
            assert await relay.stop() == 0
    return _judge(sink, pushers, kills)


async def _one_round(
    relay: RelayProcess, sink: Sink, pushers: Pushers, draw: random.Random
) -> list[asyncio.Task[None]]:
    """Push until so much is acknowledged; the destination's mood changes on the way.

    Most often all of them still push when this returns, so that a kill meets them.
    """
    stop = asyncio.Event()
    tasks = [asyncio.create_task(pushers.push(relay.port, stop)) for _ in range(PUSHERS)]
    for _ in range(draw.randint(1, 3)):
        sink.mood = draw.choice(("good", "good", *get_args(Mood)))
        wanted = len(pushers.acknowledged) + draw.randint(1, 300)
        while len(pushers.acknowledged) < wanted and not all(task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=0.01)
    if draw.random() < 0.3:
        stop.set()
        await asyncio.gather(*tasks)
    return tasks


def _judge(sink: Sink, pushers: Pushers, kills: int) -> str:
    lost = pushers.acknowledged - sink.accepted.keys()
    invented = sink.accepted.keys() - pushers.tried
    assert not lost, f"{len(lost)} acknowledged are lost, as {sorted(lost)[:5]}"
    assert not invented, f"{len(invented)} were never pushed, as {sorted(invented)[:5]}"
    twice = sum(count - 1 for count in sink.accepted.values())
    return (
        f"{len(pushers.acknowledged)} acknowledged, all arrived; {twice} extra deliveries; {kills} kills; "
        f"refused {dict(pushers.refused)}"
    )


def main() -> int:
    """Race as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(race(Path(folder), asked.rounds, asked.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
