"""arq on Valkey: a hundred jobs at a time in one event loop, no results kept."""

import asyncio

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.work.rivals.race import Race

AHEAD = 100
JOBS = 100
race = Race()


async def noop(_: dict[str, object], number: int) -> None:
    """Do nothing."""
    race.ran()


async def begin(_: dict[str, object]) -> None:
    """The worker is ready."""
    race.ready()


async def main() -> None:
    """Run the race."""
    settings = RedisSettings.from_dsn(race.broker)
    pool = await create_pool(settings)
    with race.enqueueing() as numbers:
        for at in numbers[::AHEAD]:
            await asyncio.gather(*(pool.enqueue_job("noop", n) for n in numbers[at : at + AHEAD]))
    worker = Worker(
        [func(noop, name="noop", keep_result=0)],
        redis_settings=settings,
        burst=True,
        on_startup=begin,
        handle_signals=False,
        max_jobs=JOBS,
        poll_delay=0.05,
        log_results=False,
    )
    await worker.async_run()
    await worker.close()
    race.finish(f"{JOBS} jobs at a time, no results, uvloop")


if __name__ == "__main__":
    uvloop.run(main())
