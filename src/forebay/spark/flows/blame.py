"""Whose fault an error is: that of the rows, which are then looked for, or anything else's.

Invariants: a log that is away, a module that isn't there, a file of flows that is wrong, and Spark's own
trouble are never blamed on rows, since rows that are blamed are given up. What fails in Spark's processes
comes as text; it is the rows' fault only if neither its name nor a line of its trace is ours.
"""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)

from forebay.spark.flows.halving import NOT_OF_ROWS

_OF_DATA: Final = (
    ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, IllegalArgumentException,
    NumberFormatException, SparkRuntimeException,
)  # fmt: skip
_NOISE: Final = ("Traceback ", "File ", "  ", "\t", "JVM stacktrace", "org.apache.", "SQLSTATE")
_TRACE: Final = "Traceback (most recent call last):"
_NAMED: Final = re.compile(r"^([A-Za-z_][\w.]*)(?=:|$)", re.MULTILINE)
"""An error after its trace: its name, at the beginning of a line."""
_OUR_LINE: Final = re.compile(r'File "[^"]*[/\\]forebay[/\\]spark[/\\]')
_UNREADABLE: Final = ", in read_command"
"""In the trace of a function that a process of Spark's could not read: it knows another code, or none."""
_OF_IMPORTS: Final = ("ImportError", "ModuleNotFoundError")


class ActionRaised(Exception):  # noqa: N818 - it never leaves a flow
    """A function of DataFrames raised; `cause` is what."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def is_of_rows(error: BaseException) -> bool:
    """Whether rows may be to blame for what an action or its job raised."""
    if isinstance(error, ActionRaised):
        if isinstance(error.cause, PySparkException | Py4JError):
            return is_of_rows(error.cause)
        return not isinstance(error.cause, NOT_OF_ROWS)
    if isinstance(error, PythonException):
        return not _is_ours(str(error))
    return isinstance(error, _OF_DATA) and not (_TRACE in str(error) and _is_ours(str(error)))


def _is_ours(text: str) -> bool:
    """Whether an error of Spark's processes, as text, is that of our code or of what is installed."""
    found = _NAMED.search(text.rpartition(_TRACE)[2])
    name = found[1] if found else ""
    return (
        name.startswith("forebay.")
        or name in _OF_IMPORTS
        or _OUR_LINE.search(text) is not None
        or _UNREADABLE in text
    )


def told(error: BaseException) -> str:
    """What an error says, without the traces that Spark puts around it: the last line of Python's own."""
    if isinstance(error, ActionRaised):
        return told(error.cause)
    if isinstance(error, PythonException) or _TRACE in str(error):
        lines = [line for line in str(error).splitlines() if line and not line.startswith(_NOISE)]
        said = lines[-1].strip() if lines else type(error).__name__
        name, colon, rest = said.partition(": ")
        return f"{name.rpartition('.')[2]}{colon}{rest}"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
