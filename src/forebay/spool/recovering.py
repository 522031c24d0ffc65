"""Files that a crash left half written become finished ones, before anything new is written.

What was acknowledged is in them: every line before the place that a later line calls synced, and perhaps what
follows. So a block after that place is kept if it is whole, and set aside if it isn't: it may never have been
acknowledged, and its producer pushes it again under the same id. Before that place only single lines can be
damaged, and it is left to reading to set those aside.

Invariants: no byte is removed before it is safe elsewhere; a crash during recovery is followed by another
recovery, which ends the same.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from forebay.disk import Disk, File, is_full
from forebay.model import Clock, SystemClock
from forebay.spool.aside import keep_faults
from forebay.spool.faults import translated
from forebay.spool.lines import SpooledBlock, encode_entry
from forebay.spool.names import FAILED, FileName, parse_name, sort_names
from forebay.spool.scanning import Assembler, Fault, Found, Stretch, walk

_CHUNK_BYTES: Final = 1 << 20


class Recovered(msgspec.Struct, frozen=True):
    """What became of a file: `events` were kept in it, `faults` were set aside.

    One that is `left` is as it was: there is no room to set anything aside.
    """

    name: FileName
    events: int
    faults: int
    left: bool = False


def recover(disk: Disk, *, clock: Clock | None = None, may_leave: bool = False) -> list[Recovered]:
    """Finish the files that are being written; only while nobody writes to the folder.

    Who can't wait for room on a full disk `may_leave` files, and has them finished by a `Reader` later.
    """
    clock = clock or SystemClock()
    with translated("recovered"):
        disk.make_folder("")
        disk.make_folder(FAILED)
        _drop_half_copies(disk)
        names = sort_names(disk.list(), "writing")
        return [recover_file(disk, name, clock.now(), may_leave=may_leave) for name in names]


def rewrite(
    disk: Disk,
    name: FileName,
    faults: list[Fault],
    now: int,
    partial: Sequence[Found] = (),
    *,
    failed: bool = False,
) -> None:
    """Replace a file by a finished one without these faults, which are set aside first.

    Of the blocks in `partial`, which are damaged, what could be read is written anew. With `failed` it is the
    file of that name in `failed`.
    """
    folder = FAILED if failed else ""
    path, copy, finished = (f"{folder}/{n}".lstrip("/") for n in (name, _copy_name(name), name.finished))
    file = disk.open(path)
    try:
        keep_faults(disk, name, file, faults, path=path, now=now)
        kept = _copy_without(disk, copy, file, [*faults, *partial])
    finally:
        file.close()
    if kept:
        disk.rename(copy, finished)
        disk.sync_folder(folder)
    else:
        disk.remove(copy)
    if name.state == "writing" or not kept:
        disk.remove(path)
    disk.sync_folder(folder)


def recover_file(disk: Disk, name: FileName, now: int, *, may_leave: bool = False) -> Recovered:
    """Finish one file that a crash left; nothing is left of one that holds nothing sound."""
    file = disk.open(str(name))
    try:
        events, faults = _look(file, name, now)
        size = file.size()
        if not faults and size:
            file.sync()
    finally:
        file.close()
    if not size:
        disk.remove(str(name))
    elif not faults:
        disk.rename(str(name), str(name.finished))
        disk.sync_folder()
    else:
        try:
            rewrite(disk, name, faults, now)
        except OSError as error:
            with suppress(OSError):
                disk.remove(_copy_name(name))
            if not may_leave or not is_full(error):
                raise
            return Recovered(name, events, 0, left=True)
    return Recovered(name.finished, events, len(faults))


def _look(file: File, name: FileName, now: int) -> tuple[int, list[Fault]]:
    """Count what is good, and gather what can't stay: all but damage within what was synced."""
    assembler = Assembler(name, now)
    events = synced = 0
    bad: list[tuple[Fault, int]] = []
    for item in walk(file, assembler):
        if isinstance(item, Found):
            events += len(item.entry)
            if isinstance(item.entry, SpooledBlock) and item.entry.damaged:
                reason = f"{item.entry.damaged} messages of the block can't be read"
                bad.append((Fault("torn", reason, item.stretch), len(item.entry)))
        else:
            bad.append((item, 0))
        if assembler.synced > synced:
            synced = assembler.synced
            bad = [(fault, count) for fault, count in bad if _is_beyond(fault.stretch, synced)]
    return events - sum(count for _, count in bad), [fault for fault, _ in bad]


def _is_beyond(stretch: Stretch, synced: int) -> bool:
    return stretch.offset + stretch.size > synced


def _copy_without(disk: Disk, name: str, source: File, changes: Sequence[Fault | Found]) -> int:
    """Copy a file but for some stretches, and say how many bytes were kept.

    Empty lines take the place of what is left out: others keep their numbers, of which ids are made.
    """
    copy = disk.open(name, create=True)
    try:
        kept = offset = 0
        for change in sorted(changes, key=lambda change: change.stretch.offset):
            kept += _copy(copy, source, offset, change.stretch.offset)
            if change.stretch.offset >= offset:
                entry = change.entry if isinstance(change, Found) else None
                data = b"" if entry is None else encode_entry(entry)
                copy.append(data + b"\n" * (change.stretch.lines - len(entry or ())))
                kept += len(data)
            offset = max(offset, change.stretch.offset + change.stretch.size)
        kept += _copy(copy, source, offset, source.size())
        copy.sync()
    finally:
        copy.close()
    return kept


def _copy(copy: File, source: File, start: int, end: int) -> int:
    for offset in range(start, end, _CHUNK_BYTES):
        copy.append(source.read_at(offset, min(_CHUNK_BYTES, end - offset)))
    return max(0, end - start)


def _copy_name(name: FileName) -> str:
    return f"{name.stem}.copy"


def _drop_half_copies(disk: Disk) -> None:
    """Remove the copies that a crash left: what they were made of is still there."""
    for folder in ("", FAILED):
        for name in disk.list(folder):
            stem, _, ending = name.rpartition(".")
            if ending == "copy" and parse_name(f"{stem}.buf"):  # nobody else's
                disk.remove(f"{folder}/{name}".lstrip("/"))
