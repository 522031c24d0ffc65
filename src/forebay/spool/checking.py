"""Looking at a folder of spool files, and mending it: for commands, on files at rest.

`list_files`, `verify` and `set_aside` may also look at a folder that is in use, where files come and go.

Invariants: these three change nothing; `repair` removes no byte that isn't safe in `failed`.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from forebay.disk import Disk
from forebay.model import Clock, SystemClock
from forebay.spool.aside import Reason, reasons
from forebay.spool.faults import translated
from forebay.spool.lines import SpooledBlock
from forebay.spool.names import FAILED, FileName, sort_names
from forebay.spool.recovering import Recovered, recover, rewrite
from forebay.spool.scanning import Assembler, Fault, Found, walk

FAULTS_MAX: Final = 1_000
"""How many faults of a file are listed one by one."""
State = Literal["writing", "finished", "failed"]


class Listed(msgspec.Struct, frozen=True):
    """A file, without a look into it."""

    name: FileName
    state: State
    bytes: int


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a file. `faults` has the first of `faults_count`; `queues` counts messages by queue."""

    name: FileName
    bytes: int
    messages: int
    blocks: int
    settlements: int
    queues: dict[str, int]
    faults: list[Fault]
    faults_count: int

    @property
    def unfinished(self) -> int:
        """How many faults are only the end of a file that is being written, or was when a crash came.

        Nothing in them was acknowledged. Of a finished file none are.
        """
        if self.name.state != "writing":
            return 0
        end, count = self.bytes, 0
        for fault in reversed(self.faults):
            if fault.kind != "torn" or fault.stretch.offset + fault.stretch.size < end:
                break
            end, count = fault.stretch.offset, count + 1
        return count

    @property
    def is_sound(self) -> bool:
        """Whether every line was read that may have been acknowledged."""
        return self.faults_count == self.unfinished


class Repaired(msgspec.Struct, frozen=True):
    """What `repair` did: files that a crash left, and how many faults were set aside from which others."""

    recovered: list[Recovered]
    mended: dict[str, int]


def list_files(disk: Disk) -> list[Listed]:
    """The files of a folder: finished ones, oldest first, then those being written, then failed ones."""
    with translated("listed"):
        names, failed = disk.list(), disk.list(FAILED)
        found: list[tuple[FileName, State, int | None]] = [
            *((name, "finished", _size(disk, str(name))) for name in sort_names(names, "finished")),
            *((name, "writing", _size(disk, str(name))) for name in sort_names(names, "writing")),
            *(
                (name, "failed", _size(disk, _path(name, failed=True)))
                for name in sort_names(failed, "finished")
            ),
        ]
    return [Listed(name, state, size) for name, state, size in found if size is not None]


def set_aside(disk: Disk) -> Iterator[Reason]:
    """Why what is in `failed` is there, by file, oldest first.

    Nothing is said of what was refused once and has left since.
    """
    with translated("listed"):
        listed = set(disk.list(FAILED))
    stems = [name.removesuffix(".reasons") for name in listed if name.endswith(".reasons")]
    for name in sort_names((f"{stem}.buf" for stem in stems), "finished"):
        with translated("read"):
            for reason in reasons(disk, name):
                if reason.kind != "refused" or str(name) in listed:
                    yield reason


def verify(disk: Disk, name: FileName, *, failed: bool = False) -> Verified:
    """Read a file from end to end."""
    messages = blocks = settlements = faults_count = 0
    queues: dict[str, int] = {}
    faults: list[Fault] = []
    with translated("read"):
        file = disk.open(_path(name, failed=failed))
        try:
            size = file.size()  # before: what is appended while this reads is no more than its end
            for item in walk(file, Assembler(name, 0)):
                if isinstance(item, Fault):
                    faults_count += 1
                    faults += [item] if len(faults) < FAULTS_MAX else []
                elif isinstance(item.entry, SpooledBlock):
                    blocks += 1
                    messages += len(item.entry)
                    queues[item.entry.queue] = queues.get(item.entry.queue, 0) + len(item.entry)
                else:
                    settlements += 1
        finally:
            file.close()
    return Verified(
        name=name,
        bytes=size,
        messages=messages,
        blocks=blocks,
        settlements=settlements,
        queues=queues,
        faults=faults,
        faults_count=faults_count,
    )


def repair(disk: Disk, *, clock: Clock | None = None) -> Repaired:
    """Finish what a crash left and set aside what can't be read, so that every file is sound.

    Reading would do the same. Takes the folder's lock, and raises `Misconfigured` while a process uses it.
    """
    clock = clock or SystemClock()
    lock = disk.lock()
    try:
        recovered = recover(disk, clock=clock)
        with translated("repaired"):
            mended = {
                _path(name, failed=failed): _mend(disk, name, clock.now(), failed=failed)
                for failed in (False, True)
                for name in sort_names(disk.list(FAILED if failed else ""), "finished")
            }
        return Repaired(recovered, {name: count for name, count in mended.items() if count})
    finally:
        lock.close()


def _mend(disk: Disk, name: FileName, now: int, *, failed: bool) -> int:
    """Set aside the faults of a file, and say how many there were."""
    faults: list[Fault] = []
    partial: list[Found] = []
    file = disk.open(_path(name, failed=failed))
    try:
        for item in walk(file, Assembler(name, now)):
            if isinstance(item, Fault):
                faults.append(item)
            elif isinstance(item.entry, SpooledBlock) and item.entry.damaged:
                partial.append(item)
    finally:
        file.close()
    if faults:
        rewrite(disk, name, faults, now, partial, failed=failed)
    return len(faults)


def _path(name: FileName, *, failed: bool) -> str:
    return f"{FAILED}/{name}" if failed else str(name)


def _size(disk: Disk, name: str) -> int | None:
    """How long a file is; None where it is gone by now."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        return file.size()
    finally:
        file.close()
