"""A package on disk: written whole, file by file, and only where it differs.

Invariants: a file that wasn't generated is never overwritten, and then nothing is; a crash leaves each file
as it was or as it should be; a file that is as it should be isn't touched.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from forebay.contract.generating.layout import MARK
from forebay.contract.naming import name_fault
from forebay.model import Rejected

__all__ = ["Written", "stale_files", "write_package"]


class Written(msgspec.Struct, frozen=True):
    """What became of a package, by name of file."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def stale_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """The files that aren't as they should be, or aren't there."""
    return [name for name, text in files.items() if _read(folder / name) != text.encode()]


def write_package(folder: Path, files: Mapping[str, str]) -> Written:
    """Make the package what it should be."""
    _check_folder(folder)
    stale = stale_files(folder, files)
    for name in stale:
        _check_ours(folder / name)
    try:
        if stale:
            folder.mkdir(parents=True, exist_ok=True)
        for name in stale:
            _replace(folder / name, files[name].encode())
    except OSError as error:
        text = f"{folder} can't be written: {error.strerror}"
        raise Rejected(text, hint="name a folder that can be made, or written to") from error
    return Written(tuple(stale), tuple(name for name in files if name not in stale))


def _check_folder(folder: Path) -> None:
    name = folder.resolve().name
    if why := name_fault(name, {}):
        raise Rejected(
            f"a package can't be called {name!r}: it {why}", hint="use another --out, such as tasks"
        )
    if folder.exists() and not folder.is_dir():
        raise Rejected(f"{folder} is no folder", hint="use another --out")


def _check_ours(path: Path) -> None:
    data = _read(path)
    if data and not data.startswith(MARK.encode()):
        raise Rejected(f"{path} wasn't generated, and is left alone", hint="move it, or use another --out")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Rejected(f"{path} can't be read: {error.strerror}", hint="move it away") from error


def _replace(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
