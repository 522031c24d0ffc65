"""Celery on Valkey: one process with the pool `solo`, acknowledged early, no results, events or gossip."""

from contextlib import suppress

from celery import Celery, signals
from celery.worker import state

from benchmarks.work.rivals.race import Race

race = Race()
app = Celery("race", broker=race.broker)
app.conf.update(
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    worker_prefetch_multiplier=1_000,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""
    race.ran()


def stop() -> None:
    """Have the worker end after this task."""
    state.should_stop = 0


def main() -> None:
    """Run the race."""
    with race.enqueueing() as numbers, app.producer_pool.acquire(block=True) as producer:
        for number in numbers:
            noop.apply_async((number,), producer=producer)
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        loglevel="ERROR",
    )
    signals.worker_ready.connect(lambda **_: race.ready(), weak=False)
    race.when_over(stop)
    with suppress(SystemExit):  # how a worker ends
        worker.start()
    race.finish("pool solo, prefetch of 1000, no results")


if __name__ == "__main__":
    main()
