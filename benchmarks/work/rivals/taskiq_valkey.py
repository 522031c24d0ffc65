"""taskiq on Valkey: streams, which acknowledge, or a list, from which a task that a worker took is gone."""

import asyncio

import uvloop
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.work.rivals.race import Race

AHEAD = 100
TASKS = 100
race = Race()
if race.kind == "list":
    broker = ListQueueBroker(race.broker)
else:
    broker = RedisStreamBroker(race.broker, xread_count=1_000)


@broker.task
async def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


async def main() -> None:
    """Run the race."""
    over = asyncio.Event()
    race.when_over(over.set)
    broker.is_worker_process = True
    await broker.startup()
    with race.enqueueing() as numbers:
        for at in numbers[::AHEAD]:
            await asyncio.gather(*(noop.kiq(n) for n in numbers[at : at + AHEAD]))
    receiver = Receiver(
        broker, max_async_tasks=TASKS, max_prefetch=TASKS, run_startup=False, validate_params=False
    )
    stop = asyncio.Event()
    race.ready()
    working = asyncio.create_task(receiver.listen(stop))
    await over.wait()
    stop.set()
    await working
    await broker.shutdown()
    race.finish(f"{race.kind}, {TASKS} tasks at a time, uvloop")


if __name__ == "__main__":
    uvloop.run(main())
