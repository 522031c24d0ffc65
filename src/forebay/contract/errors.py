"""What goes wrong with contracts, and with tasks that should follow one."""

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from forebay.model import Rejected

__all__ = ["FAULTS_MAX", "Fault", "InvalidContract", "InvalidFile", "Undecodable", "UnknownFormat"]

FAULTS_MAX = 1_000
"""Faults that are kept of one file."""
_SHOWN_MAX = 100


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to correct in a file. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        """Say it in one line, beginning with the place in the form that editors know."""
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class InvalidFile(Rejected):
    """A file that can't be used; `faults` is all that is wrong with it, in the order of its lines."""

    what: ClassVar = "the file is"

    def __init__(self, faults: Sequence[Fault]) -> None:
        shown = [str(fault) for fault in faults[:_SHOWN_MAX]]
        if len(faults) > _SHOWN_MAX:
            shown.append(f"and {len(faults) - _SHOWN_MAX} more")
        lines = shown[0] if len(shown) == 1 else "".join(f"\n  {line}" for line in shown)
        super().__init__(lines if len(shown) == 1 else f"{self.what} wrong:{lines}")
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class InvalidContract(InvalidFile):
    """A contract that can't be used; `faults` is all that is wrong with it, in the order of its lines."""

    what = "the contract is"


class Undecodable(Rejected):
    """The bytes of a task aren't what its contract says: they stay so, however often it is tried."""


class UnknownFormat(Undecodable):
    """A task of a codec, or of a newer version of the contract, that isn't known here: park it.

    Who knows it can read it: a worker with the newer contract.
    """
