"""Real servers for tests, each on its own loopback port and in its own temporary directory.

Nothing here depends on a server that happens to run, and only processes started here are ended,
by their own process id. `absent` is what a fixture calls when a server cannot be had.
"""

import os
from typing import NoReturn

import pytest

from tests.servers.forebay import ForebayServer, environment
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerUnavailableError
from tests.servers.prometheus import PrometheusServer, promtool
from tests.servers.proxy import FaultProxy, Verdict
from tests.servers.tarantool import TarantoolServer
from tests.servers.valkey import ValkeyServer

__all__ = [
    "FaultProxy",
    "ForebayServer",
    "PostgresServer",
    "PrometheusServer",
    "ServerUnavailableError",
    "TarantoolServer",
    "ValkeyServer",
    "Verdict",
    "absent",
    "environment",
    "promtool",
]


def absent(reason: str) -> NoReturn:
    """Fail when CI=true, because there a missing server hides tests; skip elsewhere."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
