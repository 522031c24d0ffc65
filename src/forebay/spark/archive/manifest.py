"""The manifest of an archive: which files count, and what they hold. Values and rules, no I/O.

A file that no manifest names is nothing. Invariants (`faults` names what breaks them): the messages of a
queue, from where its archive starts up to `next`, are each in one file or in one gap, and in no two; a file's
name, its day and its numbers agree. The format is drawn in docs/explanation/archive-format.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from forebay.model import Misconfigured, to_datetime

FORMAT: Final = 1
Table = Literal["messages", "outcomes"]
_NAME_MAX: Final = 200
_KEPT: Final = 150


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file. Messages: `first` to `last`, each once. Outcomes: those about `first` to `last`."""

    path: str
    """From the archive's folder."""
    table: Table
    queue: str
    day: str
    """UTC, of when the log took the messages."""
    first: int
    last: int
    rows: int
    bytes: int
    checksum: str
    """BLAKE2b of its bytes, 16 of them, in hex."""
    since: int
    until: int
    """When the log took its first and its last message, in microseconds."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that can't be archived any more: they were dropped before, or can't be read."""

    queue: str
    first: int
    last: int
    reason: str
    found_at: int

    def __len__(self) -> int:
        """How many."""
        return self.last - self.first + 1


class Retired(msgspec.Struct, frozen=True):
    """A file that others have replaced; it stays for a while, for those who began to read before."""

    path: str
    at: int


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue is archived."""

    number: int
    """The queue's: that of another log may have another, and one that is made anew has the same."""
    start: int
    next: int
    """The first sequence number that is not archived."""
    early: int = 0
    """Messages that were archived before every group had finished with them: later outcomes aren't here."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds."""

    format: int = FORMAT
    version: int = 0
    written_at: int = 0
    queues: dict[str, Archived] = {}
    files: tuple[DataFile, ...] = ()
    gaps: tuple[Gap, ...] = ()
    retired: tuple[Retired, ...] = ()

    def of(self, queue: str, table: Table = "messages") -> list[DataFile]:
        """The files of a queue, by their messages."""
        found = [each for each in self.files if each.queue == queue and each.table == table]
        return sorted(found, key=lambda each: each.first)

    def gaps_of(self, queue: str) -> list[Gap]:
        """The gaps of a queue, in order."""
        return sorted((gap for gap in self.gaps if gap.queue == queue), key=lambda gap: gap.first)

    def names(self) -> set[str]:
        """All paths that must not be removed."""
        return {each.path for each in self.files} | {each.path for each in self.retired}


def read_manifest(data: bytes, where: str) -> Manifest:
    """A manifest out of its JSON; Misconfigured where it isn't one that can be read here."""
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        text = f"{where} is no manifest of an archive: {error}"
        raise Misconfigured(text, hint="restore the folder `manifest` from a backup") from None
    if found.format > FORMAT:
        text = f"{where} has format {found.format}, and this version reads up to {FORMAT}"
        raise Misconfigured(text, hint="use a newer version")
    return found


def faults(manifest: Manifest) -> list[str]:
    """What is wrong with a manifest in itself, in words; nothing, if it is right."""
    found: list[str] = []
    paths = [each.path for each in manifest.files]
    found += [f"{path} is named twice" for path in sorted({p for p in paths if paths.count(p) > 1})]
    for name in sorted({each.queue for each in manifest.files} - manifest.queues.keys()):
        found.append(f"there are files of {name!r}, of which nothing is said")
    for name, archived in sorted(manifest.queues.items()):
        found += _tiling(name, archived, manifest)
    found += [text for each in manifest.files for text in _file_faults(each)]
    return found


def _tiling(name: str, archived: Archived, manifest: Manifest) -> Iterator[str]:
    parts = [(each.first, each.last, each.path) for each in manifest.of(name)]
    parts += [(gap.first, gap.last, "a gap") for gap in manifest.gaps_of(name)]
    at = archived.start
    for first, last, what in sorted(parts):
        if first > at:
            yield f"{name!r}: messages {at} to {first - 1} are nowhere"
        if first < at:
            yield f"{name!r}: messages {first} to {min(last, at - 1)} are there twice ({what})"
        at = max(at, last + 1)
    if at != archived.next:
        yield f"{name!r}: it should go up to {archived.next - 1}, and goes up to {at - 1}"


def _file_faults(file: DataFile) -> Iterator[str]:
    if file.last < file.first or file.until < file.since:
        yield f"{file.path} ends before it begins"
    if file.table == "messages" and file.rows != file.last - file.first + 1:
        yield f"{file.path} has {file.rows} rows for messages {file.first} to {file.last}"
    if {day_of(file.since), day_of(file.until)} != {file.day}:
        yield f"{file.path} is of {file.day}, and its messages aren't"


def advanced(
    manifest: Manifest, queue: str, step: Archived, files: Sequence[DataFile], gaps: Sequence[Gap]
) -> Manifest:
    """The manifest once a queue is archived from `step.start` to `step.next`, by these files and gaps."""
    before = manifest.queues.get(queue)
    if before is not None:
        step = msgspec.structs.replace(step, start=before.start, early=before.early + step.early)
    return msgspec.structs.replace(
        manifest,
        queues=manifest.queues | {queue: step},
        files=(*manifest.files, *files),
        gaps=(*manifest.gaps, *gaps),
    )


def replaced(manifest: Manifest, old: Collection[str], new: Sequence[DataFile], now: int) -> Manifest:
    """The manifest once some files have taken the place of others."""
    kept = [each for each in manifest.files if each.path not in old]
    retired = (*manifest.retired, *(Retired(path, now) for path in sorted(old)))
    return msgspec.structs.replace(manifest, files=(*kept, *new), retired=retired)


def holes(first: int, end: int, parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies between `first` and `end` (not included) and in none of the parts, as first and last."""
    found: list[tuple[int, int]] = []
    at = first
    for low, high in sorted(parts):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at < end:
        found.append((at, end - 1))
    return found


def day_of(time: int) -> str:
    """The day of a time in microseconds, UTC."""
    return to_datetime(time).date().isoformat()


def folder_of(table: Table, queue: str, day: str) -> str:
    """The folder of a queue's day, in the way that Spark, DuckDB and others know."""
    return f"{table}/queue={escaped(queue)}/day={day}"


def escaped(name: str) -> str:
    """A queue's name as a part of a path; one that would be too long ends in a digest."""
    plain = quote(name, safe="")
    if len(plain) <= _NAME_MAX:
        return plain
    return f"{plain[:_KEPT]}~{blake2b(name.encode(), digest_size=8).hexdigest()}"


def file_name(first: int, last: int, mark: str) -> str:
    """A file's name: sorted by name, files are in the order of their messages."""
    return f"{first:019d}-{last:019d}-{mark}.parquet"
