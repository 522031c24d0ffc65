"""Fixtures and settings that every rung of the tests shares."""

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.awake import Awake
from tests.clock_jumps import Jumping
from tests.seeds import repeat_command, seeds_of
from tests.servers import (
    ForebayServer,
    PostgresServer,
    ServerUnavailableError,
    TarantoolServer,
    ValkeyServer,
    absent,
    promtool,
)

# CI repeats itself: it tries the same examples in every run, so that nothing but the change decides.
# `make soak` explores, with many times the examples. A failure prints a blob that reproduces it
# (`@reproduce_failure(...)`). Neither profile shrinks a failure: on a database that takes longer than a test
# may, and the blob is enough to shrink it elsewhere.
for _name, _examples in (("ci", 60), ("soak", 1_000)):
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name == "ci",
        print_blob=True,
        database=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
hypothesis.settings.register_profile("dev", max_examples=25, deadline=None, print_blob=True)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI", "").lower() == "true" else "dev")
)

# Files of tests live in memory where there is room for them: no test needs the disk to lose its power, and
# a busy disk makes one run take ten times as long as another.
_MEMORY = Path("/dev/shm")
_ROOM = 8 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    tempfile.tempdir = str(_MEMORY)

# A shell starts what it runs in the background deaf to Ctrl-C, and every command of a test would be so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_WORKERS_MAX = 8


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a soak and a stress take their time: `--timeout` doesn't reach tests with a limit of their own."""
    soak, stress = os.environ.get("HYPOTHESIS_PROFILE") == "soak", "STRESS_ROUND" in os.environ
    if soak or stress:
        for item in items:
            item.add_marker(pytest.mark.timeout(0 if soak else 1_200), append=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes a seed once for each seed that is listed for it."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "seed" in metafunc.fixturenames and "seed" not in named:
        metafunc.parametrize("seed", seeds_of(metafunc.definition.nodeid), ids=lambda seed: f"seed-{seed}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how to repeat each failure."""
    failed = [report for kind in ("failed", "error") for report in terminalreporter.getreports(kind)]
    if failed:
        terminalreporter.section("to repeat")
    for test in dict.fromkeys(report.nodeid for report in failed):
        terminalreporter.line(repeat_command(test))


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Give a generator for what a test draws; the seed is in the test's name."""
    return random.Random(seed)


@pytest.hookimpl(optionalhook=True)  # there is none without pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` runs the tests in: two more than cores, as tests wait half of the time.

    Each has its own servers, so there is no fixture that two of them share.
    """
    return min((os.cpu_count() or 1) + 2, _WORKERS_MAX)


@pytest.fixture
def awake() -> Iterator[Awake]:
    """Give a clock for bounds, which leaves out what the machine stalls."""
    with Awake() as clock:
        yield clock


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> Jumping:
    """Give a hand on the clock of the machine."""
    return Jumping(monkeypatch)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Give one PostgreSQL 18 for all tests of this process; a test that stops it makes its own instead."""
    try:
        server = PostgresServer("wheel-18")
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the address of a fresh, empty database; it is dropped after the test."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


def _own_valkey() -> Iterator[ValkeyServer]:
    try:
        server = ValkeyServer("wheel")
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """Give one Valkey for all tests of this process; a test that stops it takes `valkey` instead."""
    yield from _own_valkey()


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    """Give a Valkey of the test's own, to be killed."""
    yield from _own_valkey()


@pytest.fixture
def valkey_url(valkey_server: ValkeyServer) -> str:
    """Give the address of an empty Valkey: what earlier tests left is flushed."""
    valkey_server.flush()
    return valkey_server.url


@pytest.fixture(scope="session")
def prometheus_program() -> None:
    """Go on only where Prometheus is installed."""
    try:
        promtool("--version")
    except ServerUnavailableError as error:
        absent(str(error))


def _own_tarantool() -> Iterator[TarantoolServer]:
    try:
        server = TarantoolServer()
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def tarantool_server() -> Iterator[TarantoolServer]:
    """Give one Tarantool for all tests of this process; whoever kills it starts it again."""
    yield from _own_tarantool()


@pytest.fixture
def tarantool() -> Iterator[TarantoolServer]:
    """Give a Tarantool of the test's own, to be killed."""
    yield from _own_tarantool()


@pytest.fixture(scope="module")
def forebay_server() -> Iterator[ForebayServer]:
    """Give a Forebay server process with a SQLite file, for the tests of one module."""
    with ForebayServer() as server:
        yield server
