"""`forebay spool`: list, verify, repair; a folder of spool files, also one of a server that is gone.

Invariants: `list` and `verify` change nothing and need no lock, so they work beside a running server; a file
that can't be read doesn't keep the others from being looked at.
"""

import argparse
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.app.commands.meter import Meter, shown
from forebay.app.commands.opened import declare_text
from forebay.app.commands.output import age_text, print_json, print_line, print_table, time_text, warn
from forebay.disk import RealDisk
from forebay.model import Rejected, SystemClock, Unavailable
from forebay.spool import checking
from forebay.spool.aside import Reason
from forebay.spool.checking import Listed, Repaired, State, Verified
from forebay.spool.names import FAILED, RESERVE, FileName, parse_name
from forebay.spool.reader import Reader
from forebay.spool.recovering import Recovered
from forebay.spool.scanning import Fault

__all__ = [
    "Checked", "check_file", "declare_folder", "declare_text_of_folder", "fault_text", "list_spool",
    "opened_folder", "plural", "recovered_fields", "repair", "said_lines", "set_aside_text", "verify",
]  # fmt: skip

LOCK: Final = "lock"
SHOWN_MAX: Final = 20
"""Faults of a file, and lines that were set aside, that people are shown one by one."""
REASONS_MAX: Final = 10_000
"""Lines that were set aside that programs are given one by one."""


def declare_folder(parser: argparse.ArgumentParser) -> None:
    """The argument of every verb on a folder."""
    parser.add_argument("folder", metavar="DIR", help="the spool's folder, such as forebay-data/spool")


def declare_text_of_folder(parser: argparse.ArgumentParser) -> None:
    """The arguments of a verb that works on a folder alone."""
    declare_folder(parser)
    declare_text(parser)


def opened_folder(name: str) -> RealDisk:
    """The folder as a disk; whatever is wrong with it is said."""
    folder = Path(name)
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        raise Rejected(f"there is no folder {name}", hint="check the path") from None
    except NotADirectoryError:
        raise Rejected(f"{name} is no folder", hint="name the folder that the spool's files are in") from None
    except OSError as error:
        text = f"the folder {name} can't be read: {error.strerror}"
        raise Rejected(text, hint="run this as the user that the server ran as, or check the disk") from error
    if not any(entry in (LOCK, RESERVE, FAILED) or parse_name(entry) for entry in names):
        raise Rejected(f"{name} is no spool: no file in it is one of a spool's", hint=_nearby(folder, names))
    return RealDisk(folder)


def _nearby(folder: Path, names: Iterable[str]) -> str:
    """Where the spool may be instead."""
    if folder.name == FAILED:
        return f"name the folder around it: {folder.parent}"
    below = [entry for entry in ("spool", "buffers") if entry in names]
    return (
        f"did you mean {folder / below[0]}?"
        if below
        else "a server's is the folder `spool` in its data folder"
    )


def list_spool(arguments: argparse.Namespace) -> int:
    """Print the files, oldest first, and what they sum up to."""
    disk = opened_folder(arguments.folder)
    now = SystemClock().now()
    rows = [row for listed in _by_age(checking.list_files(disk)) if (row := _row(disk, listed, now))]
    total = {name: sum(row[name] for row in rows) for name in ("bytes", "events")}
    if arguments.json:
        print_json({"files": rows, "total": {"files": len(rows), **total}})
        return 0
    if rows:
        columns = ("file", "state", "bytes", "events")
        cells = [[*(row[name] for name in columns), age_text(row["age_seconds"])] for row in rows]
        print_table([*columns, "age"], cells)
    held = ((len(rows), "file"), (total["events"], "event"), (total["bytes"], "byte"))
    print_line(", ".join(plural(count, noun) for count, noun in held))
    return 0


def _by_age(files: Iterable[Listed]) -> list[Listed]:
    """Oldest first; what was set aside comes last."""
    return sorted(files, key=lambda listed: (listed.state == "failed", listed.name))


def _row(disk: RealDisk, listed: Listed, now: int) -> dict[str, Any] | None:
    """A file for programs; None where it is gone by now."""
    name, failed = listed.name, listed.state == "failed"
    try:
        events = Reader(disk).count(name, failed=failed)
    except Unavailable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    begun = name.minted_at()
    return {
        "file": _path(name, listed.state), "state": listed.state, "bytes": listed.bytes, "events": events,
        "age_seconds": None if begun is None else max(0, now - begun) / 1_000_000,
    }  # fmt: skip


def _path(name: FileName, state: State) -> str:
    return f"{FAILED}/{name}" if state == "failed" else str(name)


class Checked(msgspec.Struct, frozen=True):
    """A file that was read from end to end, or why it couldn't be."""

    path: str
    listed: Listed
    found: Verified | None
    error: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing in it is damaged."""
        return self.found is not None and self.found.is_sound

    def fields(self) -> dict[str, Any]:
        """For programs."""
        known = {"file": self.path, "state": self.listed.state, "sound": self.is_sound}
        if self.found is None:
            return {**known, "error": self.error}
        found = {name: getattr(self.found, name) for name in (
            "bytes", "messages", "blocks", "settlements", "queues", "unfinished", "faults_count",
        )}  # fmt: skip
        return {**known, **found, "faults": list(map(_fault_fields, self.found.faults))}


def check_file(disk: RealDisk, listed: Listed) -> Checked | None:
    """Read a file; None where it is gone by now."""
    path = _path(listed.name, listed.state)
    try:
        return Checked(path, listed, checking.verify(disk, listed.name, failed=listed.state == "failed"))
    except Unavailable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        return Checked(path, listed, None, error.message)


def verify(arguments: argparse.Namespace) -> int:
    """Read everything; exit status 1 when something is damaged."""
    disk = opened_folder(arguments.folder)
    files = _by_age(checking.list_files(disk))
    meter = Meter("verify", sum(listed.bytes for listed in files), "bytes")
    checked: list[Checked] = []
    with shown(meter):
        for listed in files:
            found = check_file(disk, listed)
            checked += [found] if found else []
            meter.add(listed.bytes)
    aside = list(islice(checking.set_aside(disk), REASONS_MAX))
    damaged = [found for found in checked if not found.is_sound]
    if arguments.json:
        print_json(
            {
                "files": [found.fields() for found in checked],
                "set_aside": [_reason_fields(reason) for reason in aside],
                "damaged": len(damaged),
            }
        )
    else:
        _print_checked(checked)
        _print_aside(aside)
        _print_verdict(arguments.folder, checked, damaged)
    return 1 if damaged else 0


def _print_checked(checked: Sequence[Checked]) -> None:
    rows = []
    for one in checked:
        found = one.found
        counts = (found.messages, found.blocks, found.settlements) if found else (0, 0, 0)
        faults = found.faults_count - found.unfinished if found else "unreadable"
        rows.append((one.path, one.listed.state, *counts, _queues(found.queues if found else {}), faults))
    if rows:
        print_table(["file", "state", "messages", "blocks", "settlements", "queues", "faults"], rows)
    for one in checked:
        for line in said_lines(one):
            print_line(line)


def said_lines(checked: Checked) -> list[str]:
    """What is wrong with a file, a line each; not all, where it is much."""
    if checked.found is None:
        return [f"{checked.path}: {checked.error}"]
    found = checked.found
    faults = found.faults
    lines = [f"{checked.path} {fault_text(fault)}" for fault in faults[:SHOWN_MAX]]
    if found.faults_count > SHOWN_MAX:
        lines.append(f"{checked.path}: and {found.faults_count - SHOWN_MAX:,} more")
    if found.unfinished:
        text = "its end is being written, or was when a crash came; nothing in it was acknowledged"
        lines.append(f"{checked.path}: {text}")
    return lines


def fault_text(fault: Fault) -> str:
    """Where something is in its file, and what is wrong with it."""
    first, last = fault.stretch.line, fault.stretch.line + fault.stretch.lines - 1
    where = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    return f"{where}: {fault.kind}: {fault.reason}"


def _fault_fields(fault: Fault) -> dict[str, Any]:
    stretch = fault.stretch
    return {
        "kind": fault.kind, "reason": fault.reason, "line": stretch.line, "lines": stretch.lines,
        "offset": stretch.offset, "bytes": stretch.size,
    }  # fmt: skip


def _reason_fields(reason: Reason) -> dict[str, Any]:
    return {name: getattr(reason, name) for name in Reason.__struct_fields__}


def _queues(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _print_aside(aside: Sequence[Reason]) -> None:
    if not aside:
        return
    rows = [
        (
            reason.file,
            str(reason.line),
            reason.lines,
            reason.kind,
            reason.reason,
            time_text(reason.set_aside_at),
        )
        for reason in aside[:SHOWN_MAX]
    ]
    print_table(["file", "line", "lines", "kind", "reason", "set aside"], rows, title=f"in {FAILED}/")
    if len(aside) > SHOWN_MAX:
        more = f"{len(aside) - SHOWN_MAX:,}" if len(aside) < REASONS_MAX else "many"
        print_line(f"and {more} more: see `--json`, or {FAILED}/*.reasons")


def _print_verdict(folder: str, checked: Sequence[Checked], damaged: Sequence[Checked]) -> None:
    messages = sum(one.found.messages for one in checked if one.found)
    settlements = sum(one.found.settlements for one in checked if one.found)
    held = (
        f"{plural(len(checked), 'file')}, {plural(messages, 'message')}, {plural(settlements, 'settlement')}"
    )
    if not damaged:
        warn(f"{held}: all is sound")
        return
    noun = "is" if len(damaged) == 1 else "are"
    advice = f"`forebay spool repair {folder}` sets aside what can't be read, and so does replaying"
    warn(f"{held}: {len(damaged):,} of the files {noun} damaged; {advice}")


def repair(arguments: argparse.Namespace) -> int:
    """Finish what a crash left, and set aside what can't be read."""
    disk = opened_folder(arguments.folder)
    done = checking.repair(disk)
    if arguments.json:
        print_json(_repaired_fields(done))
        return 0
    for recovered in done.recovered:
        text = f"recovered, {plural(recovered.events, 'event')} kept"
        print_line(f"{recovered.name}: {text}{set_aside_text(recovered.faults)}")
    for name, faults in done.mended.items():
        print_line(f"{name}: mended{set_aside_text(faults)}")
    if not done.recovered and not done.mended:
        warn("there was nothing to repair")
    elif done.mended or any(recovered.faults for recovered in done.recovered):
        warn(f"what was set aside is in {disk.folder / FAILED}: *.bad has the lines, *.reasons says why")
    return 0


def set_aside_text(faults: int) -> str:
    """The end of a sentence about a file."""
    return f", {plural(faults, 'piece')} set aside" if faults else ""


def _repaired_fields(done: Repaired) -> dict[str, Any]:
    return {
        "recovered": [recovered_fields(recovered) for recovered in done.recovered],
        "mended": [{"file": name, "set_aside": faults} for name, faults in done.mended.items()],
    }


def recovered_fields(recovered: Recovered) -> dict[str, Any]:
    """What became of a file that a crash left, for programs."""
    return {"file": str(recovered.name), "events": recovered.events, "set_aside": recovered.faults}


def plural(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
