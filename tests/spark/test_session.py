"""The session: what Java it runs on, and that the data source is there without being registered."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.model import Misconfigured
from forebay.spark.java import java_home, java_version
from forebay.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_counts(spark: "SparkSession") -> None:
    assert spark.range(1000).count() == 1000


def test_without_a_java_on_the_machine_the_one_that_comes_with_the_package_runs(tmp_path: Path) -> None:
    home = java_home({"PATH": str(tmp_path)})
    assert java_version(home) >= 17
    shim = (home / "bin" / "java").read_text()
    assert "jdk.incubator.vector" in shim


def test_a_java_home_without_java_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="JAVA_HOME names a folder with no Java") as caught:
        java_home({"JAVA_HOME": str(tmp_path)})
    assert "unset JAVA_HOME" in str(caught.value.hint)


@pytest.mark.parametrize(("master", "local"), [("local[*,4]", True), ("local", True), ("spark://h:1", False)])
def test_where_driver_and_executors_are_one_process(master: str, local: bool) -> None:  # noqa: FBT001 - a table
    assert is_local(master) is local
