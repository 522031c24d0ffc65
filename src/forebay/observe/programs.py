"""The programs that `forebay up` runs beside the server, as it writes them down for the server's page.

Invariant: a file counts only for servers that the process which wrote it has started, so what a killed one
left behind is never shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = ["Program", "ProgramState", "programs_file", "read_programs", "write_programs"]

ProgramState: TypeAlias = Literal["starting", "running", "waiting", "missing", "given up", "done"]
"""`waiting`: it ended by itself, and is started again. `missing`: it can't run here."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program beside the server."""

    name: str
    """`pipeline`, `snapshot` or `worker`."""
    state: ProgramState
    reason: str | None = None
    """Why it is missing, or why it last ended."""
    again_at: int | None = None
    """When it is started again (µs), while it waits."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    process: int
    programs: Sequence[Program]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Record).decode


def programs_file(data: str) -> Path:
    """The file in the data folder."""
    return Path(data) / "up.json"


def write_programs(file: Path, programs: Sequence[Program]) -> None:
    """Write what runs beside the servers that this process has started."""
    beside = file.with_suffix(".new")
    beside.write_bytes(_encode(_Record(process=os.getpid(), programs=programs)))
    beside.rename(file)


def read_programs(file: Path, process: int) -> Sequence[Program]:
    """What runs beside the servers of a process; nothing where it has written nothing that can be read."""
    try:
        record = _decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return ()
    return record.programs if record.process == process else ()
