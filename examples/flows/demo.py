"""`make demo`: the server, the flows of this folder and some orders a second, until Ctrl+C."""

import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import forebay
from forebay import Message

HERE = Path(__file__).parent
BATCH = 20
LOOK = """
Orders are coming in at {url}, {rate} a second. In another terminal:

  {forebay} top --store {url}                     queues and their rates, live
  {forebay} tail orders-clean --store {url}       what the flow makes of the orders
  {forebay} dead list orders --group clean-orders --store {url}   those that it can't read, and why
  {forebay} ledger --store {url}                  every message is somewhere
  ls -R forebay-data/orders                       the same as Parquet files

Flows begin when Spark is up, some ten seconds from now. Ctrl+C ends all of it.
"""


def main() -> int:
    """Start everything, push until somebody has seen enough."""
    ending = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ending.set())
    command = [
        sys.executable,
        "-m",
        "forebay.app.cli",
        "up",
        "--flows",
        str(HERE / "flows.yaml"),
        *sys.argv[1:],
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stdout is not None, "it is listened to"
        url = running.stdout.readline().strip()
        if not url:
            return running.wait()
        print(LOOK.format(url=url, rate=BATCH, forebay=Path(sys.executable).parent / "forebay"), flush=True)
        with forebay.SyncClient(url) as client:
            number = 0
            while not ending.wait(1.0) and running.poll() is None:
                client.put_task("orders", *(order(number + index) for index in range(BATCH)))
                number += BATCH
        running.send_signal(signal.SIGTERM)
    return 0


def order(number: int) -> Message:
    """An order; one in twenty can't be read."""
    customer = f"customer-{random.randrange(50)}"
    if number % BATCH == 0:
        return Message(b"this is no order", partition=customer)
    fields = {
        "customer": customer,
        "price": round(random.uniform(1, 100), 2),
        "count": random.randrange(1, 9),
    }
    return Message(json.dumps(fields).encode(), partition=customer)


if __name__ == "__main__":
    sys.exit(main())
