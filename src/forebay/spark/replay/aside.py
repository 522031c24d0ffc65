"""What a bulk replay can't replay, set aside: a file of NDJSON for each spool file that has some.

A line is {"file", "line", "lines", "kind", "reason", "text"}, or "text_base64" where it isn't UTF-8; "cut" is
true where the text is longer than is kept.

Invariants: a file is there whole or not at all; another attempt writes the same under the same name; the
spool file itself stays as it is.
"""

from __future__ import annotations

import base64
import os
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from forebay.model import Unavailable
from forebay.spark.replay.planning import Source
from forebay.spool.scanning import Stretch

TEXT_BYTES_MAX: Final = 1 << 20
REASON_CHARACTERS_MAX: Final = 1_000


class Aside:
    """The file for what is wrong with one spool file; it is made when there is something."""

    def __init__(self, folder: str | None, source: Source) -> None:
        self._folder = None if folder is None else Path(folder)
        self._source = source
        self._cut = False
        self._file: IO[bytes] | None = None

    @property
    def path(self) -> Path | None:
        """Where it will be: names of two folders' files may be the same."""
        if self._folder is None:
            return None
        place = blake2b(self._source.shown.encode(), digest_size=4).hexdigest()
        return self._folder / f"{self._source.name.stem}.{place}.ndjson"

    def add(self, kind: str, reason: str, stretch: Stretch) -> None:
        """Write down what is wrong, and the lines themselves."""
        if self.path is None:
            return
        try:
            data = self._text(stretch)
            file = self._file = self._file or self._made().open("wb")
            file.write(msgspec.json.encode(self._line(kind, reason, stretch, data)) + b"\n")
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> bool:
        """Make it durable; whether something in it was too long to be kept whole."""
        if self._file is None:
            return self._cut
        assert self.path is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            Path(self._file.name).replace(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return self._cut

    def _made(self) -> Path:
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def _text(self, stretch: Stretch) -> bytes:
        with (Path(self._source.folder) / self._source.path).open("rb") as file:
            file.seek(stretch.offset)
            return file.read(min(stretch.size, TEXT_BYTES_MAX))

    def _line(self, kind: str, reason: str, stretch: Stretch, data: bytes) -> dict[str, Any]:
        line: dict[str, Any] = {
            "file": self._source.shown, "line": stretch.line, "lines": stretch.lines, "kind": kind,
            "reason": reason[:REASON_CHARACTERS_MAX],
        }  # fmt: skip
        try:
            line["text"] = data.decode().removesuffix("\n")
        except UnicodeDecodeError:
            line["text_base64"] = base64.b64encode(data).decode()
        if stretch.size > len(data):
            self._cut = line["cut"] = True
        return line


def _unwritable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path} can't be written: {error.strerror}", hint="name another folder with --aside")
