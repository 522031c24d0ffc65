"""A bulk replay keeps the order of the files, also when the log goes away in the middle."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.model import Unavailable
from forebay.spark.replay import replaying
from forebay.spark.replay.replaying import BulkReplay, Wishes
from forebay.spark.replay.values import Staged


class Watched(BulkReplay):
    """The log is away for the second group of files."""

    def _publish(self, staged: Staged, progress: Callable[[int], None]) -> None:
        if staged.number == 1:
            raise Unavailable("the log is away")
        progress(staged.number)


def test_nothing_newer_is_published_after_something_that_could_not_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    tools: Any = None
    replay = Watched(spark, tools, Wishes())
    tasks: Any = list(range(4))
    replay._tasks = tasks
    monkeypatch.setattr(replaying, "spread", lambda _, tasks, __: [Staged(task, [], []) for task in tasks])
    published: list[int] = []
    with pytest.raises(Unavailable):
        replay.run(published.append)
    assert published == [0]
