"""Whether files have changed since they were last read, by what their folder says of them."""

import os
from pathlib import Path
from typing import TypeAlias

__all__ = ["FileWatch", "Stamp", "stamp_of"]

Stamp: TypeAlias = tuple[int, int, int]
"""What changes when a file does: time of the last change, inode, size."""


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return status.st_mtime_ns, status.st_ino, status.st_size


class FileWatch:
    """Tells of files that somebody reads whether they have changed. Make it before the first reading."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._stamps = self._look()

    def has_changed(self) -> bool:
        """Tell whether a file is another one than at the last call; one that is gone has changed, too."""
        before, self._stamps = self._stamps, self._look()
        return self._stamps != before

    def _look(self) -> list[Stamp | None]:
        return [_stamp_at(path) for path in self._paths]


def _stamp_at(path: Path) -> Stamp | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None
