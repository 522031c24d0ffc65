"""`forebay snapshot run`: how long a round of the fold may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from forebay.app.commands.snapshot_run import FIRST_SECONDS, _next_round, _Sayer
from forebay.observe.document import Document
from forebay.spark.snapshot.counts import Counts
from forebay.spark.snapshot.job import FoldJob, Round
from forebay.spark.snapshot.numbers import FoldNumbers


class StubJob:
    """Notes how long each round may take."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    def start(self) -> None:
        """Nothing is started."""

    def after(self, number: int, seconds: float, _: Callable[[], bool]) -> Round:
        self.asked.append((number, seconds))
        nothing: Any = {"purged": {}, "slices": 0, "folded": 0, "seconds": 0.0, "done_at": 0.0, "at": 0}
        document = Document(taken_at=0.0, families=[])
        return Round(number=number + 1, document=document, counts=Counts(), **nothing)


def test_only_the_first_round_may_take_as_long_as_all_that_the_log_keeps() -> None:
    job, sayer, ending = StubJob(), _Sayer(FoldNumbers()), threading.Event()
    for _ in range(3):
        _next_round(cast("FoldJob", job), sayer, ending, 75.0)
    assert job.asked == [(-1, FIRST_SECONDS), (0, 75.0), (1, 75.0)]
