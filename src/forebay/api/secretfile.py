"""Small files that hold secrets: read whole, up to a limit, and never quoted."""

import os
from pathlib import Path
from typing import Final

from forebay.file_watch import Stamp, stamp_of
from forebay.model import Misconfigured

__all__ = ["read_secret_file"]

_FILE_BYTES_MAX: Final = 1 << 20
"""More than a thousand public keys take."""


def read_secret_file(path: Path, what: str, setting: str) -> tuple[bytes, Stamp]:
    """What is in a file, and its stamp; `setting` names it, within its section."""
    try:
        with path.open("rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        text = f"{what} in {path} can't be read: {error.strerror}"
        raise Misconfigured(text, hint="name a file that the server's user can read", key=setting) from error
    if len(data) > _FILE_BYTES_MAX:
        text = f"{path} is over {_FILE_BYTES_MAX} bytes long"
        raise Misconfigured(text, hint="is it the right file?", key=setting)
    return data, stamp
