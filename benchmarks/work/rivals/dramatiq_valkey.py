"""Dramatiq on Valkey: threads of one process, each message acknowledged after its call."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.work.rivals.race import Race

race = Race()
THREADS = 4
broker = RedisBroker(url=race.broker)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


def main() -> None:
    """Run the race."""
    with race.enqueueing() as numbers:
        for number in numbers:
            noop.send(number)
    worker = dramatiq.Worker(broker, worker_threads=THREADS)
    worker.queue_prefetch = 1_000  # it is read from the environment otherwise
    race.ready()
    worker.start()
    race.over.wait()
    worker.stop()
    race.finish(f"{THREADS} threads, prefetch of 1000")


if __name__ == "__main__":
    main()
