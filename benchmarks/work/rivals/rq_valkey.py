"""RQ on Valkey: put by pipelines, worked without a fork per job, no results kept."""

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.work.rivals.race import Race

PIPELINE = 1_000
race = Race()


def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


def main() -> None:
    """Run the race."""
    connection = Redis.from_url(race.broker)
    queue = Queue(connection=connection)
    with race.enqueueing() as numbers:
        for begin in numbers[::PIPELINE]:
            part = numbers[begin : begin + PIPELINE]
            queue.enqueue_many([Queue.prepare_data(noop, (number,), result_ttl=0) for number in part])
    worker = SimpleWorker([queue], connection=connection)
    race.ready()
    worker.work(burst=True, logging_level="ERROR")
    race.finish("SimpleWorker, enqueue_many, result_ttl 0")


if __name__ == "__main__":
    main()
