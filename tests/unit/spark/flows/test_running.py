"""What a flow does with what it finds when it is started; without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.log.values import Append, Position
from forebay.model import Message
from forebay.spark.logs import close_all

pytest.importorskip("pyspark")

from forebay.app.opening import open_log
from forebay.spark.flows.batch import Made, Part
from forebay.spark.flows.keeping import Moved
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.running import QueueFlow, Surroundings
from forebay.spark.flows.values import FlowSpec, ParquetSink, QueueSource


class Shop:
    """A log with ten messages, and a flow that writes them to files."""

    def __init__(self, folder: Path) -> None:
        self.around = Surroundings(
            opener=open_log, url=f"sqlite:///{folder / 'f.db'}", credentials={},
            checkpoints=folder / "checkpoints", folder=folder,
        )  # fmt: skip
        self.face = self.around.face()
        self.files = folder / "files"
        self.flow = FlowSpec(
            name="f",
            type="DATA_SINK",
            source=QueueSource(queue="in", group="g"),
            sink=ParquetSink(folder=str(self.files)),
        )
        queue = self.face(self.face.log.create_queue("in"))
        self.face(self.face.log.commit([Append.of(queue, [Message(b"x")] * 10)]))

    def start(self) -> QueueFlow:
        spark: Any = None
        return QueueFlow(spark, self.flow, self.around, FlowNumbers())

    def made(self, running: QueueFlow) -> Made:
        """Files of a batch, moved to where they belong."""
        assert running._files is not None
        aside = running._files._aside / "job"
        aside.mkdir(parents=True)
        (aside / "part.parquet").write_text("rows")
        made = Made((Part(files=(str(aside),), rows=1),), ())
        running._files.show(made, running._keeping.place.stem)
        return made

    def names(self) -> list[str]:
        return sorted(path.name for path in self.files.rglob("*.parquet"))

    def checkpoints(self) -> list[str]:
        return [path.name for path in (self.around.checkpoints / "f").iterdir()]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Give a shop whose flows make their checkpoint, and no query."""

    def started(running: QueueFlow, _: object) -> None:
        running._notes.folder.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(QueueFlow, "_started", started)
    yield Shop(tmp_path)
    close_all()


def test_a_checkpoint_goes_when_another_is_begun_and_not_before(shop: Shop) -> None:
    first = shop.start()
    (old,) = shop.checkpoints()
    shop.start()
    assert shop.checkpoints() == [old]
    shop.face(shop.face.log.seek(first._keeping.group, Position(5)))
    again = shop.start()
    assert shop.checkpoints() == [again._keeping.place.checkpoint] != [old]
    (again._notes.folder / "offsets").mkdir()
    (again._notes.folder / "offsets" / "0").write_text("")  # a power failure
    anew = shop.start()
    assert shop.checkpoints() == [anew._keeping.place.checkpoint] != [again._keeping.place.checkpoint]


def test_a_flow_that_lost_its_place_takes_its_files_back_and_the_next_one_starts_without_them(
    shop: Shop,
) -> None:
    first = shop.start()
    made = shop.made(first)
    second = shop.start()
    assert shop.names() == []
    made = shop.made(first)
    with pytest.raises(Moved, match="another program runs flow 'f'"):
        first._publish(made, "s", 11)
    assert shop.names() == []
    second._publish(shop.made(second), "s", 11)
    published = shop.names()
    shop.start()
    assert shop.names() == published != []
