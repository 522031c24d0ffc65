"""PgQueuer on PostgreSQL: put by its bulk statement, dequeued and recorded as done in large batches."""

import asyncpg
import uvloop
from pgqueuer import Job, QueueManager
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.work.rivals.race import Race

BULK = 1_000
BATCH = 1_000
race = Race()


async def main() -> None:
    """Run the race."""
    connection = await asyncpg.connect(race.broker)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    with race.enqueueing() as numbers:
        for at in numbers[::BULK]:
            part = numbers[at : at + BULK]
            await queries.enqueue(["noop"] * len(part), [b"%d" % n for n in part], [0] * len(part))
    manager = QueueManager(queries)

    @manager.entrypoint("noop")
    async def noop(_: Job) -> None:
        race.ran()

    race.ready()
    await manager.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    race.finish(f"batches of {BATCH}, bulk enqueue, asyncpg, uvloop")


if __name__ == "__main__":
    uvloop.run(main())
