"""Each setting of the snapshot does what it says.

`max_staleness` and `leader_only` are tried in `test_snapshot_metrics`, `names` in `test_pages`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from tests.awake import Awake
from tests.integration.test_snapshot_metrics import number, push, quick, until
from tests.servers import ForebayServer

OK = 'forebay_snapshot_refreshes_total{status="ok"}'
DEADLINE_SECONDS = 60


@pytest.fixture
def keys(valkey_url: str) -> Iterator[Redis]:
    """Give the Valkey in which the snapshot is."""
    with Redis.from_url(valkey_url, decode_responses=True) as client:
        yield client


def at_least(server: ForebayServer, series: str, value: float, awake: Awake) -> None:
    """Wait for a number."""
    deadline = awake() + DEADLINE_SECONDS
    while (number(server, series) or 0) < value:
        assert awake() < deadline, series


def test_it_is_refreshed_as_often_as_refresh_interval_says(awake: Awake) -> None:
    rarely = quick(refresh_interval="1h", max_staleness="2h")
    with ForebayServer(sections=quick()) as often, ForebayServer(sections=rarely) as seldom:
        push(seldom, 3)
        at_least(often, OK, 10, awake)
        at_least(seldom, "forebay_snapshot_age_seconds", 3, awake)
        assert number(seldom, OK) == 1


def test_keys_begin_with_redis_prefix_and_keep_versions_are_kept(
    valkey_url: str, keys: Redis, awake: Awake
) -> None:
    sections = quick(url=valkey_url, redis_prefix="shop:numbers", keep_versions=5)
    with ForebayServer(sections=sections) as server:
        at_least(server, OK, 8, awake)
        names = [str(name) for name in keys.keys("*")]
        own = [name for name in names if not name.startswith("shop:numbers:rich")]
        assert own
        assert all(name.startswith("shop:numbers:") for name in names)
        # One more may be there: the publication and this look are two steps.
        assert sum(name.endswith(":data") for name in own) in (5, 6)
        assert not (server.data / "snapshot").exists(), "url names the place"


def test_a_term_lasts_as_long_as_lock_ttl(valkey_url: str, keys: Redis, awake: Awake) -> None:
    sections = quick(url=valkey_url, lock_ttl="7s")
    with ForebayServer(sections=sections) as server:
        until(server, "forebay_snapshot_stale", 0, awake)
        left = keys.pttl("forebay:metrics:queue:snapshot:lock")
        assert isinstance(left, int)
        assert 0 < left <= 7_000
