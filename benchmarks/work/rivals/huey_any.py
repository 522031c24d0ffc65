"""Huey on Valkey or on SQLite: threads of one process, no results kept."""

from huey import RedisHuey, SqliteHuey

from benchmarks.work.rivals.race import Race

race = Race()
WORKERS = 1
if race.kind == "sqlite":
    # Its own default is not to sync each commit: this is what its documentation calls durable.
    huey = SqliteHuey(filename=race.broker, results=False, fsync=True)
else:
    huey = RedisHuey(url=race.broker, results=False)


@huey.task()
def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


def main() -> None:
    """Run the race."""
    with race.enqueueing() as numbers:
        for number in numbers:
            noop(number)
    consumer = huey.create_consumer(
        workers=WORKERS, periodic=False, check_worker_health=False, initial_delay=0.01
    )
    race.ready()
    consumer.start()
    race.over.wait()
    consumer.stop(graceful=True)
    race.finish(f"{WORKERS} thread, no results")


if __name__ == "__main__":
    main()
