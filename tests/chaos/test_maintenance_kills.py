"""Maintenance that comes and goes while the server is killed: everything arrives once, and in order."""

from __future__ import annotations

import threading

from tests.integration.queen.calling import Caller, until
from tests.servers import ForebayServer

MODE = "/api/v1/system/maintenance"
PUSHERS = 4


class Pusher(threading.Thread):
    """Pushes numbers to a partition of its own, each until it is answered."""

    def __init__(self, caller: Caller, partition: str, progress: threading.Condition) -> None:
        super().__init__(name=partition)
        self._caller = caller
        self._progress = progress
        self.is_ending = False
        self.count = 0

    def run(self) -> None:
        while not self.is_ending:
            try:
                self._caller.push(
                    "q", self.count, partition=self.name, transactionId=f"{self.name}-{self.count}"
                )
            except (OSError, AssertionError):  # it is down, or not up yet: the same again
                continue
            with self._progress:
                self.count += 1
                self._progress.notify_all()


def test_what_is_pushed_arrives_once_and_in_order() -> None:
    with ForebayServer() as server:
        caller, progress = Caller(server), threading.Condition()
        pushers = [Pusher(caller, f"p{number}", progress) for number in range(PUSHERS)]

        def reached(more: int) -> None:
            """Wait until everybody has pushed so many more."""
            goals = [(pusher, pusher.count + more) for pusher in pushers]
            with progress:
                assert progress.wait_for(lambda: all(p.count >= goal for p, goal in goals), 30)

        for pusher in pushers:
            pusher.start()
        try:
            for is_killed in (False, True, True, False, True):
                caller.post(MODE, {"enabled": True})
                reached(30)
                if is_killed:
                    server.kill()
                    server.start()
                    reached(10)
                caller.post(MODE, {"enabled": False})
                if is_killed:  # in the middle of the replay
                    server.kill()
                    server.start()
                reached(10)
        finally:
            for pusher in pushers:
                pusher.is_ending = True
                pusher.join()
        until(lambda: caller.get(MODE)["bufferedMessages"] == 0, "all is in the log")
        messages = caller.drain("q", sum(pusher.count for pusher in pushers))
        for pusher in pushers:
            mine = [message["data"] for message in messages if message["partition"] == pusher.name]
            assert mine == list(range(pusher.count))
