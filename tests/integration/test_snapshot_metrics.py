"""The numbers of queues at /metrics: those of the snapshot, whatever becomes of the log."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path
from time import time
from typing import Any, Final

import pytest
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families

from forebay.observe.document import Document, encode_document, family
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.snapshot_store import meta_of
from tests.awake import Awake
from tests.integration.http_wire import ask, scrape
from tests.integration.test_commands import forebay as command
from tests.servers import ForebayServer, PostgresServer

OPEN: Final = {"Accept": "application/openmetrics-text;version=1.0.0"}
READY: Final = 'forebay_queue_ready{queue="orders",group="workers"}'
DEADLINE_SECONDS: Final = 60


def quick(**more: Any) -> dict[str, Any]:
    """Settings of a server that refreshes its snapshot all the time."""
    return {"metrics": {"queue_snapshot": {"refresh_interval": "100ms", **more}}}


def number(server: ForebayServer, series: str) -> float | None:
    """A number by its name and labels, as they are written."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", scrape(server.port), re.MULTILINE)
    return None if found is None else float(found[1])


def until(server: ForebayServer, series: str, value: float | None, awake: Awake) -> None:
    """Wait for a number."""
    deadline = awake() + DEADLINE_SECONDS
    while (found := number(server, series)) != value:
        assert awake() < deadline, f"{series} is {found}, not {value}"


def push(server: ForebayServer, count: int) -> None:
    """Push to the queue that is looked at."""
    assert ask(server.port, "POST", "/v1/queues/orders/messages", [{"payload": 1}] * count).status == 201


def test_a_scrape_shows_where_messages_are(awake: Awake) -> None:
    with ForebayServer(sections=quick()) as server:
        push(server, 3)
        assert ask(server.port, "POST", "/v1/queues/orders/take", {"count": 1}).status == 200
        until(server, READY, 2, awake)
        until(server, 'forebay_queue_leased{queue="orders",group="workers"}', 1, awake)
        text = ask(server.port, "GET", "/metrics", headers=OPEN).body.decode()
        families = {family.name: family for family in open_parser.text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
        assert families["forebay_queue_accepted"].samples[0].value == 3
        assert families["forebay_snapshot_stale"].samples[0].value == 0
        names = [family.name for family in text_string_to_metric_families(scrape(server.port))]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("headers", [OPEN, {"Accept": "text/plain"}], ids=["open_metrics", "classic"])
def test_who_reads_gzip_gets_the_same_text_compressed(awake: Awake, headers: dict[str, str]) -> None:
    with ForebayServer(sections=quick()) as server:
        push(server, 3)
        until(server, READY, 3, awake)
        plain = ask(server.port, "GET", "/metrics", headers=headers)
        packed = ask(server.port, "GET", "/metrics", headers=headers | {"Accept-Encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert plain.headers["vary"] == packed.headers["vary"] == "accept, accept-encoding"
        assert "content-encoding" not in plain.headers
        assert len(packed.body) * 3 < len(plain.body)
        assert names_in(gzip.decompress(packed.body)) == names_in(plain.body)


def names_in(text: bytes) -> list[str]:
    """What each line is about: its numbers change."""
    return [line if line.startswith("#") else line.rsplit(" ", 1)[0] for line in text.decode().splitlines()]


def test_an_age_grows_between_two_refreshes(awake: Awake) -> None:
    series = 'forebay_queue_oldest_age_seconds{queue="orders",group="workers"}'
    with ForebayServer(sections=quick()) as server:
        push(server, 1)
        until(server, READY, 1, awake)
        before = number(server, series)
        assert before is not None
        deadline = awake() + DEADLINE_SECONDS
        while (number(server, series) or 0) <= before:
            assert awake() < deadline


def test_the_last_snapshot_is_served_while_the_log_is_away(awake: Awake) -> None:
    with (
        PostgresServer() as cluster,
        ForebayServer(cluster.create_database(), sections=quick(max_staleness="1s")) as server,
    ):
        push(server, 5)
        until(server, READY, 5, awake)
        until(server, "forebay_snapshot_stale", 0, awake)
        cluster.stop()
        until(server, "forebay_snapshot_stale", 1, awake)
        assert number(server, READY) == 5
        failed = 'forebay_snapshot_refreshes_total{status="error"}'
        before = number(server, failed)
        deadline = awake() + DEADLINE_SECONDS
        while (number(server, failed) or 0) <= (before or 0):
            assert awake() < deadline, "it has given up"
        server.stop()
        server.start(ready=False)
        until(server, READY, 5, awake)
        cluster.start()
        until(server, "forebay_snapshot_stale", 0, awake)


def test_of_several_servers_only_one_shows_series_where_that_is_wanted(
    postgres_dsn: str, valkey_url: str, awake: Awake
) -> None:
    def serving() -> ForebayServer:
        sections = quick(leader_only=True, url=valkey_url, lock_ttl="1s")
        return ForebayServer(postgres_dsn, sections=sections)

    with serving() as first:
        push(first, 2)
        until(first, READY, 2, awake)
        with serving() as second:
            until(second, "forebay_snapshot_series", number(first, "forebay_snapshot_series"), awake)
            assert number(second, READY) is None
            first.kill()
            until(second, READY, 2, awake)


@pytest.mark.parametrize(("rich_interval", "stale"), [("15s", 1), ("1h", 0)])
def test_what_another_process_computes_is_shown_with_the_rest(
    awake: Awake, rich_interval: str, stale: int
) -> None:
    with ForebayServer(sections=quick(rich_interval=rich_interval)) as server:
        asyncio.run(publish_part(server.data / "snapshot" / "rich"))
        until(server, 'forebay_events{project="shop"}', 7, awake)
        age = number(server, 'forebay_snapshot_part_age_seconds{part="rich"}')
        assert age is not None
        assert age > 100
        assert number(server, 'forebay_snapshot_part_stale{part="rich"}') == stale
        assert number(server, 'forebay_snapshot_part_stale{part="counters"}') == 0
        assert number(server, "forebay_snapshot_stale") == 0


async def publish_part(folder: Path) -> None:
    """Publish as the job on Spark does."""
    events = family("forebay_events", "gauge", "Events.", ("project",), [(("shop",), 7)])
    data = encode_document(Document(taken_at=time() - 1000, families=[events]))
    store = FileSnapshots(folder)
    term = await store.begin_term("spark", 10)
    assert term is not None
    meta = meta_of(term, data, source="spark", generated_at=time(), seconds=1, rows=1)
    await store.publish(term, data, meta)


def test_a_folder_has_no_leader(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(json.dumps(quick(leader_only=True)))
    ended = command("serve", "--config", "forebay.yaml", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert ended.returncode == 3
    assert "leader_only needs a snapshot that servers share" in ended.stderr
    assert "metrics.queue_snapshot.url" in ended.stderr
