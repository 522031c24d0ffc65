"""`forebay pipeline check` and `list`, where no Spark is needed for the answer."""

import io
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from forebay.app.cli import main
from forebay.model import Unavailable

FLOWS = """\
flows:
  - name: clean
    type: TRANSFORM
    source: {queue: orders}
    actions: [{name: parse, rows: "some_shop_functions:parse"}]
    sink: {queue: orders-clean}
"""


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_shop_functions.py").write_text("def parse(row):\n    return row\n")
    path = tmp_path / "flows.yaml"
    path.write_text(FLOWS)
    return path


def test_a_list_has_a_line_for_each_flow(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", str(flows)]) == 0
    assert "clean  TRANSFORM  orders as clean  parse    orders-clean  1s" in capsys.readouterr().out


def test_flows_without_spark_are_refused_in_a_line(
    flows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "forebay.app.commands.piping", raising=False)
    assert main(["pipeline", "run", str(flows), "--once"]) == 3
    assert capsys.readouterr().err == "forebay: flows need Spark; pip install 'forebay[spark]'\n"


@pytest.mark.parametrize("patient", [True, False])
def test_a_log_that_is_away_is_waited_for_unless_somebody_waits(
    patient: bool,  # noqa: FBT001 - a case
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    from forebay.app.commands import piping  # noqa: PLC0415 - without Spark there is none

    tries: list[int] = []

    class Around:
        def face(self) -> None:
            tries.append(1)
            if len(tries) < 3:
                raise Unavailable("the database is away")

    monkeypatch.setattr(piping, "_AGAIN_SECONDS", 0)
    around: Any = Around()
    with nullcontext() if patient else pytest.raises(Unavailable):
        piping._open(around, patient=patient)
    assert len(tries) == (3 if patient else 1)


def test_a_check_says_which_queues_will_be_made(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    assert main(["pipeline", "check", str(flows), "--store", "sqlite:///log.db"]) == 0
    said = capsys.readouterr().err
    assert "flow 'clean': queue 'orders-clean' is made when it starts" in said
    assert "the flows are right: 1 flow" in said


def test_a_check_finds_what_is_wrong_in_the_file_and_beside_it(
    flows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    flows.write_text(FLOWS.replace(":parse", ":purse"))
    assert main(["pipeline", "check", str(flows), "--json"]) == 3
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert (fault["line"], fault["column"]) == (5, 15)
    assert (
        fault["message"] == "flow 'clean': some_shop_functions:purse: module some_shop_functions has no purse"
    )
    flows.write_text(FLOWS.replace("TRANSFORM", "TRANSFROM"))
    assert main(["pipeline", "check", str(flows)]) == 3
    assert "flows.yaml:3:11: flow 'clean': there is no type 'TRANSFROM'" in capsys.readouterr().err


def test_the_screen_has_a_line_for_each_flow_and_one_for_each_error() -> None:
    pytest.importorskip("pyspark")
    from forebay.app.commands.piping import screen  # noqa: PLC0415 - only with Spark
    from forebay.spark.flows.pipeline import Status  # noqa: PLC0415 - likewise

    well = Status(
        name="clean", type="TRANSFORM", state="running", error=None, rows_per_second=1234.5, lag=7,
        rows_in=10_000, rows_out=9_990, dead=10, restarts=0, last_rows=500, last_seconds=0.25,
    )  # fmt: skip
    ill = msgspec.structs.replace(well, name="files", state="failed", error="OSError: disk full", restarts=3)
    console = Console(width=120, file=io.StringIO(), highlight=False)
    console.print(screen([well, ill]))
    said = console.file.getvalue()  # type: ignore[attr-defined]  # it is what was given
    assert "clean  running   1,234    7  10,000  9,990    10         0  500 in 0.25 s" in said
    assert "files: OSError: disk full" in said
