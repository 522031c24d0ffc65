"""One Spark session for all tests of this process, and what they talk to."""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import ForebayServer, PostgresServer, absent
from tests.spark.queues import Shelf, shelf_at
from tests.spark.shops import Shop
from tests.spark.sinks import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder: the first test of it waits for a session, some ten seconds."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Give the session that the tests share; a task may fail three times in it, as on a cluster."""
    try:
        import pyspark  # noqa: F401, PLC0415 - absent without the spark extra
    except ModuleNotFoundError:
        absent("PySpark is not installed: pip install -r requirements-spark.lock.txt")
    from forebay.spark.session import session  # noqa: PLC0415 - likewise

    # Executors are processes that import what is tested here, and the tests' own modules.
    root = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    )
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.log.level": "ERROR",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Spark's own, at its start
        running = session("tests", master="local[2,4]", settings=settings)
    yield running
    running.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Give a log for a sink to write to; at the end every message in it is accounted for."""
    if request.param == "sqlite":
        target = Target(f"sqlite:///{tmp_path / 'forebay.db'}")
        yield target
        target.check_ledger()
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    target = Target(server.create_database())
    yield target
    target.check_ledger()
    server.drop_database(target.url)


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """Give an empty log, of either kind, that Spark's processes open by its address."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'log.db'}"
    else:
        url = request.getfixturevalue("postgres_dsn")
    with shelf_at(url) as opened:
        yield opened


@pytest.fixture
def file_shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Give an empty log in a file, where one kind of log will do."""
    with shelf_at(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        yield opened


@pytest.fixture
def shop(spark: "SparkSession", tmp_path: Path) -> Iterator[Shop]:
    """Give flows on a log in a file."""
    opened = Shop(spark, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    yield opened
    opened.face.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_shop(request: pytest.FixtureRequest, spark: "SparkSession", tmp_path: Path) -> Iterator[Shop]:
    """Give flows on a log of either kind; by the address of a server only where a test asks for it."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'shop.db'}"
        if request.param == "postgres":
            url = request.getfixturevalue("postgres_dsn")
        elif request.param == "server":
            url = stack.enter_context(ForebayServer()).url
        opened = Shop(spark, tmp_path, url)
        stack.callback(opened.face.close)
        yield opened
