"""A process with a client that spools, told by its standard input what to do; it is there to be killed.

`push N` pushes N times to each of four partitions at once, and says of each push that it is tried and that it
is acknowledged; `drain` says when all is delivered.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from forebay.client import Client, SyncClient
from forebay.failover.settings import FailoverSettings

SETTINGS = FailoverSettings(attempt_seconds=1.0, events_per_file=20, file_seconds_max=0.02)
LINES = "abcd"
DRAIN_SECONDS = 60.0


def say(*words: object) -> None:
    """One line, at once and whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def payloads(name: str, line: str, number: int) -> list[bytes]:
    """What is pushed together."""
    return [f"{name}-{line}-{number}-{i}".encode() for i in range(number % 3 + 1)]


async def run_async(url: str, folder: str, name: str) -> None:
    """Follow commands with a task for each partition."""
    done = 0

    async def push(client: Client, line: str, count: int) -> None:
        for number in range(done, done + count):
            tasks = payloads(name, line, number)
            say("try", line, *(task.decode() for task in tasks))
            ids = await client.put_task("orders", *tasks, partition=line)
            say("ack", line, tasks[0].decode(), "log" if ids else "spool")

    async with Client(url, spool=folder, spool_settings=SETTINGS) as client:
        say("open")
        while command := await asyncio.to_thread(sys.stdin.readline):
            if command.startswith("push"):
                count = int(command.split()[1])
                await asyncio.gather(*(push(client, line, count) for line in LINES))
                done += count
                say("pushed")
            else:
                say("drained", await client.drain_spool(DRAIN_SECONDS))


def run_sync(url: str, folder: str, name: str) -> None:
    """The same with a thread for each partition."""
    done = 0

    def push(client: SyncClient, line: str, count: int) -> None:
        for number in range(done, done + count):
            tasks = payloads(name, line, number)
            say("try", line, *(task.decode() for task in tasks))
            ids = client.put_task("orders", *tasks, partition=line)
            say("ack", line, tasks[0].decode(), "log" if ids else "spool")

    with SyncClient(url, spool=folder, spool_settings=SETTINGS) as client, ThreadPoolExecutor(4) as threads:
        say("open")
        while command := sys.stdin.readline():
            if command.startswith("push"):
                count = int(command.split()[1])
                for pushing in [threads.submit(push, client, line, count) for line in LINES]:
                    pushing.result()
                done += count
                say("pushed")
            else:
                say("drained", client.drain_spool(DRAIN_SECONDS))


def main(kind: str, *arguments: str) -> None:
    """Run as an async or a sync program."""
    runs: dict[str, Callable[[], None]] = {
        "async": lambda: asyncio.run(run_async(*arguments)),
        "sync": lambda: run_sync(*arguments),
    }
    runs[kind]()


if __name__ == "__main__":
    main(*sys.argv[1:])
