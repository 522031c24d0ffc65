"""The rules of manifests, and what a crash at any step of a run leaves behind."""

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from forebay.model import Conflict, Misconfigured
from forebay.spark.archive.folder import ArchiveFolder
from forebay.spark.archive.manifest import (
    Archived,
    DataFile,
    Gap,
    Manifest,
    advanced,
    escaped,
    faults,
    folder_of,
    holes,
    read_manifest,
    replaced,
)
from forebay.spark.archive.upkeep import mergeable

DAY = 86_400_000_000


class CrashError(Exception):
    """The power went."""


def file(first: int, last: int, *, day: int = 0, path: str = "", size: int = 10) -> DataFile:
    return DataFile(
        path=path or f"messages/queue=q/day=1970-01-0{day + 1}/{first}.parquet",
        table="messages", queue="q", day=f"1970-01-0{day + 1}", first=first, last=last, rows=last - first + 1,
        bytes=size, checksum="", since=day * DAY, until=day * DAY + 1,
    )  # fmt: skip


def gap(first: int, last: int) -> Gap:
    return Gap(queue="q", first=first, last=last, reason="dropped", found_at=0)


def step(first: int, end: int) -> Archived:
    return Archived(number=1, start=first, next=end)


def test_files_and_gaps_that_follow_each_other_are_sound() -> None:
    manifest = advanced(Manifest(), "q", step(5, 21), [file(5, 10), file(14, 20)], [gap(11, 13)])
    manifest = advanced(manifest, "q", step(21, 31), [file(21, 30, day=1)], [])
    assert faults(manifest) == []
    assert manifest.queues["q"] == Archived(number=1, start=5, next=31)


@pytest.mark.parametrize(
    ("files", "gaps", "what"),
    [
        ([file(1, 5), file(7, 10)], [], "6 to 6 are nowhere"),
        ([file(1, 5), file(5, 10)], [], "5 to 5 are there twice"),
        ([file(1, 5)], [], "should go up to 10, and goes up to 5"),
        ([file(1, 10)], [gap(3, 4)], "there twice"),
        ([msgspec.structs.replace(file(1, 10), rows=9)], [], "has 9 rows"),
        ([msgspec.structs.replace(file(1, 10), day="1970-01-05")], [], "its messages aren't"),
    ],
)
def test_what_is_missing_or_there_twice_is_named(files: list[DataFile], gaps: list[Gap], what: str) -> None:
    found = faults(advanced(Manifest(), "q", step(1, 11), files, gaps))
    assert any(what in text for text in found), found


def test_files_that_are_replaced_stay_named_until_their_time_is_over() -> None:
    manifest = advanced(Manifest(), "q", step(1, 11), [file(1, 5), file(6, 10)], [])
    merged = file(1, 10, path="messages/merged.parquet")
    after = replaced(manifest, {each.path for each in manifest.files}, [merged], 7)
    assert faults(after) == []
    assert after.names() == {"messages/merged.parquet", *(each.path for each in manifest.files)}


def test_what_lies_between_parts_is_found() -> None:
    assert holes(1, 11, [(3, 4), (8, 10)]) == [(1, 2), (5, 7)]
    assert holes(1, 11, []) == [(1, 10)]
    assert holes(5, 5, []) == []


def test_only_small_files_of_one_day_that_follow_each_other_become_one() -> None:
    parts = [file(1, 5), file(6, 10), file(12, 15), file(16, 20, day=1), file(21, 25, day=1, size=100)]
    manifest = Manifest(files=tuple(parts))
    assert [[each.first for each in run] for run in mergeable(manifest, 50)] == [[1, 6]]


@pytest.mark.parametrize("name", ["orders", "a/b", "..", ".", "ü ?&=", "x" * 250, "é" * 120])
def test_any_name_of_a_queue_is_one_folder(name: str) -> None:
    assert "/" not in escaped(name)
    assert len(f"queue={escaped(name)}".encode()) <= 255
    assert folder_of("messages", name, "2026-01-01").count("/") == 2


def test_two_long_names_are_two_folders() -> None:
    assert escaped("é" * 120 + "a") != escaped("é" * 120 + "b")


def test_what_is_no_manifest_or_of_a_later_format_is_refused_with_a_way_out() -> None:
    with pytest.raises(Misconfigured, match="is no manifest"):
        read_manifest(b"{", "here")
    with pytest.raises(Misconfigured, match="format 99"):
        read_manifest(b'{"format": 99}', "here")


def data(folder: ArchiveFolder, *paths: str) -> None:
    for path in paths:
        (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / path).write_bytes(b"x")


def test_a_crash_at_any_step_leaves_the_old_archive_or_the_new_one(tmp_path: Path) -> None:
    """Count the steps of a run that writes a file, names it and sweeps; then crash before each of them."""

    def run(path: Path, steps: list[str], crash_at: int | None) -> None:
        def told(name: str) -> None:
            steps.append(name)
            if crash_at is not None and len(steps) > crash_at:
                raise CrashError(name)

        folder = ArchiveFolder(path, step=told)
        with folder.locked():
            before = folder.newest()
            folder.sweep(before)
            at = max((each.last for each in before.files), default=0) + 1
            fresh = file(at, at + 9)
            data(folder, fresh.path)
            folder.publish(advanced(before, "q", step(at, at + 10), [fresh], []), 1)

    def look(path: Path) -> Manifest:
        folder = ArchiveFolder(path)
        found = folder.newest()
        assert faults(found) == []
        assert all((folder.path / each.path).exists() for each in found.files)
        return found

    garbage = "messages/queue=q/day=1970-01-01/.half.tmp"
    all_steps: list[str] = []
    data(ArchiveFolder(tmp_path / "whole"), garbage)
    run(tmp_path / "whole", all_steps, None)
    assert all_steps == ["remove garbage", "write the manifest", "name the manifest"]
    for crash_at in range(len(all_steps)):
        path = tmp_path / str(crash_at)
        data(ArchiveFolder(path), garbage)
        with pytest.raises(CrashError):
            run(path, [], crash_at)
        assert look(path).files == ()
        run(path, [], None)
        found = look(path)
        assert [(each.first, each.last) for each in found.files] == [(1, 10)]
        assert ArchiveFolder(path).garbage(found) == []


def test_what_somebody_else_put_there_is_not_garbage(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    data(folder, "messages/README.txt", "messages/queue=q/old.parquet", "notes.parquet")
    assert [path.name for path in folder.garbage(Manifest())] == ["old.parquet"]


def test_two_who_write_at_once_are_kept_apart(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    with folder.locked(), pytest.raises(Conflict, match="another process writes"), folder.locked():
        pass
    folder.publish(Manifest(), 1)
    with pytest.raises(Conflict, match="wrote version 1"):
        folder.publish(Manifest(), 2)
    assert folder.newest().written_at == 1


def test_old_manifests_are_removed_and_the_newest_counts(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    manifest = Manifest()
    for moment in range(15):
        manifest = folder.publish(manifest, moment)
    assert len(list((tmp_path / "manifest").iterdir())) == 10
    assert (folder.newest().version, folder.newest().written_at) == (15, 14)


def test_a_folder_without_an_archive_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no archive"):
        ArchiveFolder(tmp_path).require()
