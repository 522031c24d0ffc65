"""`forebay fastqueue`: inspect, verify, repair, import; the folder of a relay's queue, or metrics-governor's.

Invariants: `inspect` and `verify` change nothing and need no lock, so they work beside a running relay;
`import` leaves the folder that it reads as it is.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from forebay.app.commands.meter import Meter, shown
from forebay.app.commands.opened import declare_text
from forebay.app.commands.output import age_text, print_fields, print_json, print_line, print_table, warn
from forebay.deliver.entry_data import encode_request
from forebay.deliver.values import Request
from forebay.disk import RealDisk
from forebay.fastqueue.faults import error_of
from forebay.fastqueue.inspection import Folder, State, chunk_bytes, format_name, repair, verify
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Damage, Record
from forebay.fastqueue.settings import FastQueueSettings
from forebay.model import Rejected, SystemClock
from forebay.model.quantity import format_bytes

__all__ = [
    "declare_folder",
    "declare_import",
    "import_folder",
    "inspect_folder",
    "repair_folder",
    "verify_folder",
]

SHOWN_MAX: Final = 20
"""Damage that people are shown piece by piece."""
_BATCH: Final = 1000
_BATCH_BYTES: Final = 8 << 20
"""Blocks of a batch are in memory at one time, and may be of many megabytes each."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")


def declare_folder(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb."""
    parser.add_argument("folder", metavar="DIR", help="the queue's folder, such as queue/prometheus")
    parser.add_argument(
        "--compression", choices=("snappy", "none"), default="snappy",
        help="of metrics-governor's files: with none, eight zeros are an empty block (default: %(default)s)",
    )  # fmt: skip
    declare_text(parser)


def declare_import(parser: argparse.ArgumentParser) -> None:
    """The arguments of `import`."""
    declare_folder(parser)
    parser.add_argument("--to", metavar="DIR", required=True, help="the folder of the queue to fill")
    parser.add_argument("--append", action="store_true", help="also to a queue that holds blocks already")
    parser.add_argument(
        "--as", dest="request", metavar="'METHOD PATH TYPE'",
        help="make each block the body of a request, for a relay: 'POST /v1/metrics application/x-protobuf'",
    )  # fmt: skip
    parser.add_argument(
        "--header", metavar="'NAME: VALUE'", action="append", default=[],
        help="with --as: a header of every request, such as 'Content-Encoding: snappy'; may be repeated",
    )  # fmt: skip


def inspect_folder(arguments: argparse.Namespace) -> int:
    """Print what a folder holds, by its heads and its meta."""
    with _named(arguments.folder):
        state = _opened(arguments).state()
    if arguments.json:
        print_json(msgspec.to_builtins(state))
        return 0
    _print_state(state)
    _print_damages(state.damages)
    return 0


def _print_state(state: State) -> None:
    rows = [(one.file, one.bytes, one.first, one.end, one.waiting) for one in state.chunks]
    if rows:
        print_table(["chunk", "bytes", "first", "end", "waiting"], rows)
    now, oldest = SystemClock().now(), state.oldest_enqueued_at_us
    print_fields(
        {
            "format": state.format,
            "blocks": f"{state.entry_count:,}",
            "bytes": f"{state.total_bytes:,}",
            "on disk": f"{state.disk_bytes:,}",
            "oldest": "" if oldest is None else age_text(max(0, now - oldest) / 1_000_000),
            "set aside": f"{state.quarantined:,}",
        }
    )


def verify_folder(arguments: argparse.Namespace) -> int:
    """Read every block; exit status 1 when something is damaged."""
    with _named(arguments.folder):
        folder = _opened(arguments)
        meter = Meter("verify", folder.disk_bytes, "bytes")
        with shown(meter):
            found = verify(folder, meter.add)
    if arguments.json:
        print_json({**msgspec.to_builtins(found), "sound": found.is_sound})
    else:
        _print_damages(found.damages)
        held = f"{found.blocks:,} blocks, {found.bytes:,} bytes"
        advice = f"`forebay fastqueue repair {arguments.folder}` sets aside what can't be read"
        warn(
            f"{held}: all is sound" if found.is_sound else f"{held}: {len(found.damages):,} damaged; {advice}"
        )
    return 0 if found.is_sound else 1


def repair_folder(arguments: argparse.Namespace) -> int:
    """Set aside what can't be read."""
    disk = _disk(arguments.folder)
    with _named(arguments.folder):
        total = _opened(arguments).recovered.total_bytes
        meter = Meter("repair", total, "bytes")
        name = format_name(disk) or "native"
        with shown(meter):
            damages = repair(disk, name, arguments.compression, SystemClock().now, meter.add)
    if arguments.json:
        print_json({"damages": msgspec.to_builtins(damages)})
        return 0
    _print_damages(damages)
    if not damages:
        warn("there was nothing to repair")
    elif any(damage.quarantined for damage in damages):
        warn(f"what was set aside is in {disk.folder / 'quarantine'}: *.bad has the bytes, *.json says why")
    return 0


def import_folder(arguments: argparse.Namespace) -> int:
    """Copy all blocks that aren't delivered into another queue, in order."""
    if os.path.realpath(arguments.folder) == os.path.realpath(arguments.to):
        raise Rejected("a folder can't be imported into itself", hint="give another folder with --to")
    made = _requests(arguments.request, arguments.header)
    with _named(arguments.folder):
        folder = _opened(arguments)
        count = _copy(folder, arguments, made)
    damages = folder.damages
    if arguments.json:
        print_json({"blocks": count, "damages": msgspec.to_builtins(damages)})
        return 0
    _print_damages(damages)
    warn(f"{count:,} blocks are in {arguments.to}; {arguments.folder} is as it was")
    return 0


def _requests(line: str | None, headers: Sequence[str]) -> Callable[[bytes], bytes]:
    """Make an entry of a relay out of a block; without a line blocks are entries already."""
    if line is None:
        if headers:
            raise Rejected("--header is given without --as", hint="say with --as what requests are made")
        return lambda block: block
    method, path, media, *more = [*line.split(), "", "", ""]
    if any(more) or method not in _METHODS or path[:1] != "/" or "/" not in media:
        hint = "give method, path and content type: --as 'POST /v1/metrics application/x-protobuf'"
        raise Rejected(f"--as '{line}' isn't a request", hint=hint)
    fields = ((b"Content-Type", media.encode()), *map(_header, headers))
    return lambda block: encode_request(Request(method.encode(), path.encode(), fields, block))


def _header(line: str) -> tuple[bytes, bytes]:
    name, _, value = line.partition(":")
    if not _TOKEN.fullmatch(name) or not value.strip().isprintable():
        raise Rejected(f"--header '{line}' isn't a header", hint="give --header 'Content-Encoding: snappy'")
    return name.encode(), value.strip().encode()


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Some at a time, by number and by bytes; one at least, whatever its size."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.data)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _copy(folder: Folder, arguments: argparse.Namespace, made: Callable[[bytes], bytes]) -> int:
    clock = SystemClock().now
    target = FastQueue.open(RealDisk(Path(arguments.to), use="FastQueue"), FastQueueSettings(), clock=clock)
    try:
        if target.entry_count and not arguments.append:
            text = f"{arguments.to} holds {target.entry_count:,} blocks already"
            raise Rejected(text, hint="give an empty folder, or add to it with --append")
        meter = Meter("import", folder.disk_bytes, "bytes")
        records = folder.records(meter.add)
        count = 0
        with shown(meter):
            for batch in _batches(records):
                # One of the formats doesn't know when a block came: it counts as new.
                times = [record.enqueued_at_us or clock() for record in batch]
                count += len(target.push([made(record.data) for record in batch], times))
        return count
    finally:
        target.close()


def _disk(name: str) -> RealDisk:
    return RealDisk(Path(name), use="FastQueue")


def _opened(arguments: argparse.Namespace) -> Folder:
    """The folder; whatever is wrong with it is said."""
    name: str = arguments.folder
    if not Path(name).is_dir():
        text = f"{name} isn't a folder" if Path(name).exists() else f"there is no folder {name}"
        raise Rejected(text, hint="name the folder that the queue's files are in")
    disk = _disk(name)
    found = format_name(disk)
    if found is None:
        raise Rejected(
            f"{name} isn't a FastQueue: no file in it is one of a queue's", hint=_nearby(Path(name))
        )
    if found == "native":  # its heads say what it holds
        return Folder(disk, found, arguments.compression)
    meter = Meter("look", chunk_bytes(disk, found), "bytes")
    with shown(meter):
        return Folder(disk, found, arguments.compression, meter.add)


def _nearby(folder: Path) -> str:
    below = [one for one in sorted(folder.iterdir()) if one.is_dir() and format_name(RealDisk(one))]
    return f"did you mean {below[0]}?" if below else "a relay has a folder for each destination in its `path`"


@contextmanager
def _named(folder: str) -> Iterator[None]:
    """Say which folder could not be read."""
    try:
        yield
    except OSError as error:
        raise error_of(error, f"read in {folder}") from error


def _print_damages(damages: Sequence[Damage]) -> None:
    for damage in damages[:SHOWN_MAX]:
        print_line(damage_text(damage))
    if len(damages) > SHOWN_MAX:
        print_line(f"and {len(damages) - SHOWN_MAX:,} more: see `--json`")


def damage_text(damage: Damage) -> str:
    """A piece of damage in one line."""
    extent = f" {format_bytes(damage.size)} at {damage.offset:,}" if damage.size else ""
    lost = _lost(damage)
    return f"{damage.file}:{extent} {damage.kind}: {damage.reason}{lost}"


def _lost(damage: Damage) -> str:
    if damage.first is None:
        return ""
    if damage.last is None or damage.last == damage.first:
        return f" (block {damage.first:,})"
    return f" (blocks {damage.first:,} to {damage.last:,})"
