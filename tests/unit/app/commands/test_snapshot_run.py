"""`forebay snapshot run`: where it folds, how often, and how long a round may take."""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from forebay.app.commands import snapshot_run
from forebay.app.commands.fold_setup import fold_folder
from forebay.app.commands.snapshot_run import FIRST_SECONDS, _next_round, _Sayer
from forebay.app.settings import Settings, StoreSection
from forebay.model import ForebayError
from forebay.observe.document import Document
from forebay.observe.refresher import Refresher
from forebay.observe.settings import MetricsSettings, SnapshotSettings
from forebay.spark.snapshot.counts import Counts
from forebay.spark.snapshot.job import FoldJob, Round
from forebay.spark.snapshot.numbers import FoldNumbers

INTERVAL: Final = 7.5


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


@pytest.mark.parametrize("named", [True, False])
def test_the_checkpoint_is_where_it_is_told_to_be_and_one_process_uses_it(
    tmp_path: Path, *, named: bool
) -> None:
    checkpoint = str(tmp_path / "elsewhere") if named else None
    settings = Settings(
        store=StoreSection(data=str(tmp_path / "data")),
        metrics=MetricsSettings(queue_snapshot=SnapshotSettings(checkpoint=checkpoint)),
    )
    folder = tmp_path / "elsewhere" if named else tmp_path / "data" / "snapshot" / "fold"
    with fold_folder(settings, "run") as found:
        assert found == folder / "run"
        assert found.is_dir()
        with pytest.raises(ForebayError, match="checkpoint"), fold_folder(settings, "run"):
            raise AssertionError("two processes fold into one checkpoint")
    with fold_folder(settings, "run") as again:
        assert again == found


def test_rounds_are_published_as_often_as_rich_interval_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = SnapshotSettings(rich_interval=INTERVAL)
    settings = Settings(
        store=StoreSection(data=str(tmp_path)), metrics=MetricsSettings(queue_snapshot=section)
    )
    job, ending, made = StubJob(), threading.Event(), list[dict[str, Any]]()

    class Noted(Refresher):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append(options)
            super().__init__(*arguments, **options)

        async def refresh(self) -> bool:
            try:
                return await super().refresh()
            finally:
                ending.set()

    monkeypatch.setattr(snapshot_run, "Refresher", Noted)
    asyncio.run(snapshot_run._publish(settings, cast("FoldJob", job), ending, None))
    assert made[0]["interval_seconds"] == INTERVAL
    assert job.asked == [(-1, FIRST_SECONDS)]
    assert (tmp_path / "snapshot" / "rich" / "current").exists()
    assert section.rich_staleness == INTERVAL + section.max_staleness


def test_spark_is_triggered_as_often_as_rich_interval_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = SnapshotSettings(rich_interval=INTERVAL)
    settings = Settings(
        store=StoreSection(data=str(tmp_path)), metrics=MetricsSettings(queue_snapshot=section)
    )
    asked = list[dict[str, Any]]()

    async def nothing(*_: Any) -> None:
        """Nothing has to be opened, or published."""

    def job(*_: Any, **options: Any) -> None:
        asked.append(options)

    loaded = SimpleNamespace(settings=settings)
    replaced: dict[str, Any] = {
        "load_from": lambda _: loaded, "file_faults": lambda _: [], "set_up_logs": lambda *_: None,
        "SparkSignals": lambda: SimpleNamespace(ending=None), "_opened": nothing, "_publish": nothing,
        "session": lambda *_, **__: None, "fold_job": job, "stop_spark": lambda *_: None,
    }  # fmt: skip
    for name, value in replaced.items():
        monkeypatch.setattr(snapshot_run, name, value)
    assert snapshot_run.run_fold(argparse.Namespace(queues=".*", master=None, metrics=None)) == 0
    assert asked == [{"pattern": ".*", "interval": INTERVAL}]
