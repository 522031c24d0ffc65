"""A checkpoint is used only where it is at the place of its flow: the log says where that is."""

import json
from pathlib import Path

import pytest

from forebay.spark.flows.notes import Notes


def noted(folder: Path, ends: list[int], done: int) -> Notes:
    """Notes of batches that end there, of which so many are done."""
    for batch, end in enumerate(ends):
        _write(folder / "offsets" / str(batch), f"v1\n{{}}\n{_offset(end)}")
        if batch < done:
            _write(folder / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
    return Notes(folder, "in")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _offset(end: int) -> str:
    return json.dumps({"queues": {"in": end}, "numbers": {"in": 1}})


@pytest.mark.parametrize(
    ("ends", "done", "place", "used"),
    [
        ([], 0, 7, True),
        ([11, 21], 2, 21, True),
        ([11, 21], 1, 11, True),  # a batch that was begun goes on
        ([11, 21], 1, 21, False),  # it was published: what Spark would read again may be gone
        ([11, 21], 2, 91, False),  # the flow ran elsewhere meanwhile
        ([11, 21], 2, 11, False),  # the log came out of a backup
        ([11], 0, 11, False),
    ],
)
def test_notes_are_used_where_they_are_at_the_place(
    tmp_path: Path, ends: list[int], done: int, place: int, *, used: bool
) -> None:
    assert noted(tmp_path, ends, done).are_at(place) is used


@pytest.mark.parametrize("file", ["metadata", "commits/1", "offsets/1", "offsets/2"])
def test_notes_that_a_power_failure_left_empty_are_not_used(tmp_path: Path, file: str) -> None:
    notes = noted(tmp_path, [11, 21, 31], 2)
    assert notes.are_at(21)
    (tmp_path / file).write_text("")
    assert not notes.are_at(21)


def test_older_notes_of_a_flow_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("f/old", "f/older", "f/now", "other/old"):
        (tmp_path / name).mkdir(parents=True)
        noted(tmp_path / name, [11], 1)
    Notes(tmp_path / "f" / "now", "in").drop_others()
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["now"]
    assert Notes(tmp_path / "f" / "now", "in").end(0) == Notes(tmp_path / "other" / "old", "in").end(0) == 11
    Notes(tmp_path / "new" / "now", "in").drop_others()
    assert not (tmp_path / "new").exists()
