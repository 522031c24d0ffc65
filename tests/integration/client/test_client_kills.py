"""A client that spools and its server, killed in turns: what was acknowledged is there once, and in order."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from forebay.client import SyncClient
from forebay.model import sequence_of
from tests.history import Pushed, check_log
from tests.servers import ForebayServer
from tests.servers.forebay import environment

ROUNDS = 3
PUSHES = 30
"""To each partition, at a command: what is said of them fits in a pipe, so that nobody waits to say it."""
SAID = 2 * 4 * PUSHES


class Victim:
    """The program, and all that it has said."""

    def __init__(self, kind: str, url: str, folder: Path, name: str, said: list[list[str]]) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.integration.client.spool_victim",
            kind,
            url,
            str(folder),
            name,
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        self._said = said
        self.hear(1)

    def tell(self, command: str) -> None:
        """Give it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def hear(self, lines: int) -> list[str]:
        """Wait until it has said so much more; the last of it."""
        assert self._process.stdout is not None
        for _ in range(lines):
            words = self._process.stdout.readline().split()
            assert words, f"the victim ended with {self._process.wait(10)}"
            self._said.append(words)
        return self._said[-1]

    def push(self) -> None:
        """Have it push, and wait for the end."""
        self.tell(f"push {PUSHES}")
        self.hear(SAID + 1)

    def kill(self) -> None:
        """Kill it with SIGKILL, and hear what it said before."""
        self._process.kill()
        assert self._process.stdout is not None
        self._said += [line.split() for line in self._process.stdout if line.endswith("\n")]
        self.close()

    def close(self) -> None:
        """End it, if it is there."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pushes_of(said: list[list[str]]) -> list[Pushed]:
    """What the victims have pushed, in the order of each partition."""
    acknowledged = {words[2] for words in said if words[0] == "ack"}
    tried = [words for words in said if words[0] == "try"]
    return [Pushed(line, tuple(names), acknowledged=names[0] in acknowledged) for _, line, *names in tried]


def found_at(url: str) -> tuple[dict[str, list[str]], list[int]]:
    """What the log has, by partition, and how far its books are off."""
    found: dict[str, list[str]] = defaultdict(list)
    with SyncClient(url) as client:
        first = 1
        while blocks := client.read("orders", first):
            for message in (message for stored in blocks for message in stored.decode()):
                found[message.partition].append(message.payload.decode())
            first = sequence_of(blocks[-1].last) + 1
        books = client.ledger()
    return found, [group.difference for queue in books.queues for group in queue.groups]


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_kills_of_the_server_and_of_the_client_lose_nothing_and_swap_nothing(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    said: list[list[str]] = []

    with ForebayServer() as server:

        def begin() -> Victim:
            return Victim(kind, server.url, tmp_path, f"v{len(said)}", said)

        victim = begin()
        for _ in range(ROUNDS):
            victim.push()
            victim.tell(f"push {PUSHES}")
            victim.hear(before := rng.randrange(SAID))
            server.kill()  # while it is being pushed to
            victim.hear(SAID + 1 - before)
            assert victim.hear(0)[0] == "pushed"
            victim.tell(f"push {PUSHES}")
            victim.hear(rng.randrange(SAID))
            victim.kill()  # while it spools
            victim = begin()
            victim.push()
            server.start(ready=rng.random() < 0.5)
            victim.tell(f"push {PUSHES}")
            victim.hear(rng.randrange(SAID))
            victim.kill()  # while it delivers, or waits for the server
            victim = begin()
            if rng.random() < 0.5:
                server.kill()
        if not server.running:
            server.start()
        victim.push()
        victim.tell("drain")
        assert victim.hear(1) == ["drained", "True"]
        found, differences = found_at(server.url)
        victim.close()
    assert check_log(pushes_of(said), found, differences=differences) == []
    ways = {words[3] for words in said if words[0] == "ack"}
    assert ways == {"log", "spool"}
    assert list(tmp_path.glob("*.buf*")) == []
    assert list((tmp_path / "failed").glob("*")) == []
