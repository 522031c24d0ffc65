"""An archive's folder: manifests, data files, and what a crash left.

Invariants: a manifest is there whole or not at all, and the newest one is the only truth; a file is safe on
disk before a manifest names it; who writes holds the lock; garbage is what no manifest names, and only that
is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from forebay.model import Conflict, Misconfigured, Unavailable
from forebay.spark.archive.manifest import Manifest, read_manifest

MANIFESTS: Final = "manifest"
KEPT_MANIFESTS: Final = 10
TABLES: Final = ("messages", "outcomes")

Step = Callable[[str], None]
"""Told of every step before it is done; a test may end the world there."""


def quietly(_: str) -> None:
    """Go on."""


class ArchiveFolder:
    """The folder at a path."""

    def __init__(self, path: str | Path, *, step: Step = quietly) -> None:
        self.path = Path(path).resolve()
        self._step = step

    def newest(self) -> Manifest:
        """What counts now; an empty manifest, where there is none."""
        found = self._manifests()
        if not found:
            return Manifest()
        try:
            return read_manifest(found[-1].read_bytes(), str(found[-1]))
        except FileNotFoundError:  # two later ones came meanwhile
            return self.newest()
        except OSError as error:
            raise _unusable(self.path, error) from error

    def require(self) -> Manifest:
        """What counts now; Misconfigured where there is no archive."""
        if not self._manifests():
            text = f"there is no archive in {self.path}"
            raise Misconfigured(text, hint="check the path; `forebay archive run` makes one")
        return self.newest()

    def _manifests(self) -> list[Path]:
        return sorted((self.path / MANIFESTS).glob("[0-9]*.json"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; Conflict while another process writes."""
        try:
            make_folder(self.path)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            text = f"another process writes the archive {self.path}"
            raise Conflict(text, hint="wait until it is done; one at a time is enough") from None
        finally:
            os.close(descriptor)

    def publish(self, manifest: Manifest, now: int) -> Manifest:
        """Make a manifest the one that counts; Conflict where somebody else was quicker."""
        manifest = msgspec.structs.replace(manifest, version=manifest.version + 1, written_at=now)
        folder = self.path / MANIFESTS
        name = folder / f"{manifest.version:012d}.json"
        fresh = folder / f".{manifest.version:012d}.{os.getpid()}.tmp"
        try:
            make_folder(folder)
            self._step("write the manifest")
            with fresh.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
                file.flush()
                os.fsync(file.fileno())
            self._step("name the manifest")
            os.link(fresh, name)  # fails where it is there, unlike a rename
            sync_folder(folder)
            fresh.unlink()
        except FileExistsError:
            text = f"another process wrote version {manifest.version} of the archive {self.path}"
            raise Conflict(text, hint="run it again") from None
        except OSError as error:
            raise _unusable(self.path, error) from error
        for old in self._manifests()[:-KEPT_MANIFESTS]:
            self._step("remove an old manifest")
            old.unlink(missing_ok=True)
        return manifest

    def garbage(self, manifest: Manifest) -> list[Path]:
        """Files of the tables that no manifest names: a crash left them, or their time is over."""
        named = manifest.names()
        found = [path for table in TABLES for path in (self.path / table).rglob("*") if path.is_file()]
        unnamed = [path for path in found if path.relative_to(self.path).as_posix() not in named]
        halves = list((self.path / MANIFESTS).glob(".*.tmp"))
        return sorted([path for path in unnamed if _is_ours(path)] + halves)

    def sweep(self, manifest: Manifest) -> int:
        """Remove garbage; only while the lock is held."""
        found = self.garbage(manifest)
        for path in found:
            self._step("remove garbage")
            path.unlink(missing_ok=True)
        return len(found)


def _is_ours(path: Path) -> bool:
    return path.suffix == ".parquet" or (path.name.startswith(".") and path.suffix == ".tmp")


def make_folder(path: Path) -> None:
    """Make a folder that survives a crash, with those above it."""
    missing = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are safe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> Unavailable:
    text = f"the archive {path} can't be used: {error.strerror or error}"
    return Unavailable(text, hint="it needs a folder that this user may write to, with room")
