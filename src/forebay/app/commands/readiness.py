"""How a program tells `forebay up` that it has come up: Spark takes its time."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["READY_VARIABLE", "say_ready"]

READY_VARIABLE: Final = "_FOREBAY_READY_FILE"
"""Names the file that the program makes once it is at work."""


def say_ready() -> None:
    """Tell whoever started this program that it is at work, if they want to know."""
    if file := os.environ.get(READY_VARIABLE):
        with suppress(OSError):  # it is only for people to look at
            Path(file).touch()
