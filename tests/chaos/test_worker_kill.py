"""A worker that is killed in the middle of its tasks: others finish them, and nobody at the same time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

import forebay
from tests.integration.work.steps import until_counts
from tests.integration.work.victim import QUEUE, VISIBILITY_SECONDS, Note
from tests.integration.work.victims import Victim
from tests.servers import ForebayServer

pytestmark = pytest.mark.chaos

TASKS = 1_000
STUCK_AT = 200
IN_HAND_MAX = 20
"""Two processors, with ten tasks each."""


def spans(notes: list[Note], killed: int, at: float) -> dict[int, list[tuple[float, float, int, int]]]:
    """When each task was with whom: begin, end, process, attempts."""
    found: dict[int, list[tuple[float, float, int, int]]] = defaultdict(list)
    for note in notes:
        if note.what == "begin":
            found[note.task].append(
                (note.at, at if note.pid == killed else float("inf"), note.pid, note.attempts)
            )
        elif note.what == "end":
            begin, _, pid, attempts = found[note.task][-1]
            assert pid == note.pid
            found[note.task][-1] = begin, note.at, pid, attempts
    return found


async def test_tasks_of_a_killed_worker_are_done_by_others_and_by_one_at_a_time(tmp_path: Path) -> None:
    with ForebayServer() as server:
        async with forebay.open(server.url) as store:
            await store.create_queue(QUEUE, {"visibility_seconds": VISIBILITY_SECONDS})
            for _ in range(TASKS // 50):
                await store.put_task(QUEUE, *[b"x"] * 50)
            doomed = Victim(server.url, tmp_path, stuck_at=STUCK_AT)
            doomed.until(lambda: sum(n.what == "stuck" for n in doomed.notes()) == 2, "both are stuck")
            heir = Victim(server.url, tmp_path)
            try:
                # All but what the stuck one has in its hands: it is alive, and keeps its leases.
                await until_counts(store, QUEUE, lambda found: found.done + IN_HAND_MAX >= TASKS)
                doomed.kill()
                killed = monotonic()
                found = await until_counts(store, QUEUE, lambda found: found.done == TASKS)
            finally:
                doomed.kill()
                heir.kill()
        assert found.difference == 0
        by_task = spans(heir.notes(), doomed.pid, killed)
    assert len(by_task) == TASKS
    again = 0
    for task, handled in by_task.items():
        for (_, end, _, _), (begin, _, _, _) in pairwise(handled):
            assert end <= begin, f"task {task} was with two at once: {handled}"
        attempts = [one[3] for one in handled]
        assert attempts in ([0], [1], [0, 1]), f"task {task}: {handled}"
        if attempts != [0]:
            again += 1
            assert handled[-1][2] == heir.pid
            assert handled[-1][0] > killed
    assert 2 <= again <= IN_HAND_MAX
