"""Files of a batch are there once, whatever a crash left, and however many programs run the flow."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.log.memory import MemoryLog
from forebay.log.seam import Log
from forebay.log.values import Append, Position
from forebay.model import Message

pytest.importorskip("pyspark")

from forebay.spark.flows.batch import Made, Part
from forebay.spark.flows.files import Folder
from forebay.spark.flows.keeping import Keeping, Moved
from forebay.spark.flows.place import FILES_KEPT
from forebay.spark.flows.values import FlowSpec, ParquetSink, QueueSource


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    """Give a log with a hundred messages."""
    async with MemoryLog() as opened:
        queue = await opened.create_queue("in")
        await opened.commit([Append.of(queue, [Message(b"x")] * 100)])
        yield opened


class Program:
    """One that runs the flow, a step at a time."""

    def __init__(self, log: Log, root: Path) -> None:
        self.sink = ParquetSink(folder=str(root))
        self.flow = FlowSpec(
            name="f", type="DATA_SINK", source=QueueSource(queue="in", group="g"), sink=self.sink
        )
        self.keeping = Keeping(log, self.flow)
        self.root = root

    async def start(self) -> "Program":
        await self.keeping.begin()
        self.folder = Folder(self.flow, self.sink, self.keeping.place)
        if self.keeping.found is not None:
            self.folder.sweep(self.keeping.found)
        return self

    def write(self, text: str) -> Made:
        """Do what a job does."""
        aside = self.folder._aside / text
        aside.mkdir(parents=True)
        (aside / "part-0.parquet").write_text(text)
        return Made((Part(files=(str(aside),), rows=1),), ())

    def show(self, text: str) -> None:
        self.folder.show(self.write(text), self.keeping.place.stem)

    async def publish(self, end: int) -> None:
        try:
            await self.keeping.publish("s", [], end, rows=1, dead=[])
        except Moved:
            if not await self.keeping.counts():
                self.folder.withdraw()
            raise
        await self.keeping.settle()


def texts(root: Path) -> list[str]:
    return sorted(path.read_text() for path in root.rglob("f-*.parquet"))


async def test_files_that_a_crash_left_are_removed_and_those_that_were_published_stay(
    log: Log, tmp_path: Path
) -> None:
    first = await Program(log, tmp_path).start()
    first.show("one")
    await first.publish(11)
    first.show("lost")  # and here it is killed
    second = await Program(log, tmp_path).start()
    assert texts(tmp_path) == ["one"]
    second.show("two")
    await second.publish(21)
    await Program(log, tmp_path).start()
    assert texts(tmp_path) == ["one", "two"]


async def test_a_program_that_starts_leaves_what_another_publishes_meanwhile(
    log: Log, tmp_path: Path
) -> None:
    first = await Program(log, tmp_path).start()
    second = await Program(log, tmp_path).start()
    second.show("second")
    await second.publish(11)
    third = await Program(log, tmp_path).start()
    assert texts(tmp_path) == ["second"]
    first.show("first")  # it has lost its place, and doesn't know
    with pytest.raises(Moved):
        await first.publish(11)
    assert texts(tmp_path) == ["second"]
    third.show("third")
    await third.publish(21)
    assert texts(tmp_path) == ["second", "third"]


async def test_files_of_a_loser_that_is_killed_are_removed_by_the_next_that_starts(
    log: Log, tmp_path: Path
) -> None:
    first = await Program(log, tmp_path).start()
    second = await Program(log, tmp_path).start()
    second.show("second")
    await second.publish(11)
    first.show("first")  # and here it is killed
    await Program(log, tmp_path).start()
    assert texts(tmp_path) == ["second"]


async def test_what_was_published_stays_when_only_the_answer_was_lost(log: Log, tmp_path: Path) -> None:
    first = await Program(log, tmp_path).start()
    first.show("one")
    before = first.keeping.place
    await first.keeping.publish("s", [], 11, rows=1, dead=[])
    second = await Program(log, tmp_path).start()
    for number in range(FILES_KEPT + 1):
        first.keeping.place = before
        with pytest.raises(Moved):
            await first.publish(11)
        assert "one" in texts(tmp_path)
        second.show(f"next-{number}")
        await second.publish(12 + number)


async def test_programs_write_aside_in_folders_of_their_own_and_leave_none(log: Log, tmp_path: Path) -> None:
    first = await Program(log, tmp_path).start()
    first.write("killed")
    second = await Program(log, tmp_path).start()
    made = second.write("second")
    third = Program(log, tmp_path)
    await third.keeping.begin()
    Folder(third.flow, third.sink, third.keeping.place).writing()
    second.folder.show(made, second.keeping.place.stem)
    assert texts(tmp_path) == ["second"]
    assert not (tmp_path / "_forebay").exists()


async def test_what_was_published_before_a_seek_is_no_leftover(log: Log, tmp_path: Path) -> None:
    first = await Program(log, tmp_path).start()
    published = [f"{number:02d}" for number in range(FILES_KEPT + 1)]
    for number, text in enumerate(published):
        first.show(text)
        await first.publish(number + 2)
    first.show("lost")
    await log.seek(first.keeping.group, Position(1))
    await Program(log, tmp_path).start()
    again = await Program(log, tmp_path).start()
    assert texts(tmp_path) == published
    again.show("again")
    await again.publish(11)
    await Program(log, tmp_path).start()
    assert texts(tmp_path) == [*published, "again"]
