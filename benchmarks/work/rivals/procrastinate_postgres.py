"""Procrastinate on PostgreSQL: put by its bulk statement, several jobs at a time, done ones deleted."""

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.work.rivals.race import Race

BULK = 1_000
JOBS = 4
race = Race()
app = App(connector=PsycopgConnector(conninfo=race.broker, min_size=JOBS, max_size=JOBS + 2))


@app.task(name="noop")
async def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


async def main() -> None:
    """Run the race."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        with race.enqueueing() as numbers:
            for at in numbers[::BULK]:
                await noop.batch_defer_async(*({"number": n} for n in numbers[at : at + BULK]))
        race.ready()
        await app.run_worker_async(
            concurrency=JOBS,
            wait=False,
            delete_jobs="successful",
            listen_notify=False,
            install_signal_handlers=False,
        )
    race.finish(f"{JOBS} jobs at a time, batch_defer, done jobs deleted, uvloop")


if __name__ == "__main__":
    uvloop.run(main())
