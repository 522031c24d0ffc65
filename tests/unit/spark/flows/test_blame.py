"""Rows are blamed for what actions make of them, and for nothing else: whoever is blamed is given up."""

import pytest

from forebay.model import Unavailable
from forebay.spark.flows.halving import RowsFail

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, NumberFormatException, PythonException, SparkRuntimeException

from forebay.spark.flows.blame import ActionRaised, is_of_rows, told

FRAME = '  File "{}", line 3, in {}\n    something()\n'
USERS = FRAME.format("/home/me/shop.py", "price")
READER = FRAME.format("/usr/lib/python3/site-packages/forebay/spark/arrow.py", "batches")
UNPICKLING = FRAME.format("/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", "read_command")


def of_a_process(frames: str, said: str) -> PythonException:
    """Give what the driver is told of an error in a process of Spark's."""
    trace = f"Traceback (most recent call last):\n{frames}{said}\n"
    return PythonException(f"An exception was thrown from the Python worker:\n{trace}")


@pytest.mark.parametrize(
    "error",
    [
        of_a_process(USERS, "ValueError: it is bad"),
        of_a_process(USERS, "ValueError: it is bad\nforebay.model.errors.Unavailable: said by a row"),
        of_a_process(USERS, "shop.errors.NoPrice"),
        PythonException("An exception was thrown from the Python worker:\nValueError: it is bad"),
        ActionRaised(ValueError("no such customer")),
        ActionRaised(of_a_process(USERS, "KeyError: 'total'")),
        NumberFormatException("[CAST_INVALID_INPUT] The value 'x' cannot be cast"),
        SparkRuntimeException("[USER_RAISED_EXCEPTION] no"),
    ],
)
def test_what_an_action_raises_on_its_rows_is_theirs(error: Exception) -> None:
    assert is_of_rows(error)


@pytest.mark.parametrize(
    "error",
    [
        of_a_process(READER, "forebay.model.errors.Unavailable: the database is away; try later"),
        of_a_process(READER, "apsw.IOError: disk I/O error"),
        of_a_process(USERS, "forebay.model.errors.Misconfigured: there is no module polls"),
        of_a_process(USERS, "forebay.spark.flows.halving.TooManyDead: over 1,000 rows of one batch fail"),
        of_a_process(USERS, "forebay.spark.flows.staging.StagingFailed: Full: no space left"),
        of_a_process(USERS, "ModuleNotFoundError: No module named 'polls'"),
        of_a_process(USERS, "ImportError: cannot import name 'price' from 'shop'"),
        of_a_process(UNPICKLING, "AttributeError: Can't get attribute 'price' on <module 'shop'>"),
        SparkRuntimeException(str(of_a_process(READER, "OSError: [Errno 24] Too many open files"))),
        AnalysisException("[UNRESOLVED_COLUMN] nothing"),
        ActionRaised(ModuleNotFoundError("No module named 'polls'")),
        ActionRaised(Unavailable("the log is away")),
        ActionRaised(AnalysisException("[UNRESOLVED_COLUMN] nothing")),
        RuntimeError("the flow is being stopped"),
        RowsFail("judged before"),
    ],
)
def test_what_is_wrong_with_the_log_or_the_installation_is_no_fault_of_rows(error: Exception) -> None:
    assert not is_of_rows(error)


def test_an_error_of_a_process_is_told_without_its_trace() -> None:
    error = of_a_process(READER, "forebay.model.errors.Unavailable: the database is away; try later")
    assert told(error) == "Unavailable: the database is away; try later"
