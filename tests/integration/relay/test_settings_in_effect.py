"""Settings of the queue do what they say, on a real disk and over restarts."""

import errno
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from forebay.app.relay_parts import open_relay
from forebay.app.settings import ExporterSettings, RelayConfig
from forebay.deliver import storage
from forebay.deliver.queue_settings import AdaptiveWorkerSettings, PipelineSettings, SendQueueSettings
from forebay.deliver.storage import fast_settings
from forebay.disk import RealDisk
from forebay.model import Misconfigured, SystemClock
from forebay.observe.metrics_page import MetricsPage
from forebay.relay.settings import RelaySettings
from tests.chaos.relay_parts import Sink
from tests.integration.relay.disk_rig import OnDisk, on_disk

NAMES = [f"{number:04d}" for number in range(40)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*") if path.is_file()]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"durability": "interval"},
        {"durability": "memory"},
        {"format": "governor"},
        {"compression": "none"},
        {"chunk_size": 1 << 12},
        {"inmemory_blocks": 4},
        {"order": "strict"},
        {"pipeline_split": PipelineSettings(enabled=True)},
        {"adaptive_workers": AdaptiveWorkerSettings(enabled=True)},
        {"format": "governor", "durability": "interval", "chunk_size": 1 << 12},
    ],
    ids=str,
)
async def test_nothing_is_lost_or_repeated_over_a_clean_restart(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with Sink() as sink:
        sink.mood = "refusing"
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url, **settings) as rig:
            assert await rig.push(*NAMES) == [202] * len(NAMES)
            await sink.until_attempts(2)
        sink.mood = "good"
        async with on_disk(tmp_path, url, **settings):
            await sink.until_all(set(NAMES), 60)
        assert set(sink.accepted.values()) == {1}


async def test_a_queue_in_memory_leaves_nothing_on_disk(tmp_path: Path) -> None:
    async with Sink() as sink, on_disk(tmp_path, f"http://127.0.0.1:{sink.port}/", type="memory") as rig:
        await rig.push(*NAMES)
        await sink.until_all(set(NAMES), 60)
    assert files(tmp_path) == []


async def test_the_format_of_metrics_governor_has_its_files(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.mood = "refusing"
        async with on_disk(tmp_path, f"http://127.0.0.1:{sink.port}/", format="governor") as rig:
            await rig.push(*NAMES)
    names = {path.name for path in files(tmp_path)}
    assert {"0000000000000000", "fastqueue.meta"} <= names


async def test_compression_saves_space(tmp_path: Path) -> None:
    sizes = {}
    for compression in ("snappy", "none"):
        folder = tmp_path / compression
        async with Sink() as sink:
            sink.mood = "refusing"
            url = f"http://127.0.0.1:{sink.port}/"
            async with on_disk(folder, url, compression=compression) as rig:
                await rig.push(*NAMES)
        sizes[compression] = sum(path.stat().st_size for path in files(folder))
    assert sizes["snappy"] < sizes["none"]


async def test_small_chunks_are_many_and_go_away_with_what_is_in_them(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.mood = "refusing"
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url, chunk_size=1 << 12, compression="none") as rig:
            await rig.push(*NAMES)
            many = len(files(tmp_path))
            sink.mood = "good"
            await sink.until_all(set(NAMES), 60)
        assert len(files(tmp_path)) < many


def test_every_setting_of_the_disk_reaches_it() -> None:
    settings = SendQueueSettings(
        format="governor", durability="interval", inmemory_blocks=3, chunk_size=1 << 13,
        meta_sync_interval=7.0, stale_flush_interval=8.0, write_buffer_size=2048, compression="none",
    )  # fmt: skip
    made = fast_settings(settings, memory_bytes=99)
    assert (made.format, made.durability, made.compression) == ("governor", "interval", "none")
    assert (made.inmemory_blocks, made.inmemory_bytes, made.chunk_size) == (3, 99, 1 << 13)
    assert (made.meta_sync_interval, made.stale_flush, made.write_buffer_size) == (7.0, 8.0, 2048)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"path": "file/queue"}, "can't be made: Not a directory", id="folder"),
        pytest.param({"tls_cert": "none.pem"}, "none.pem can't be read", id="certificate"),
        pytest.param({"token_file": "tokens"}, "tokens can't be read", id="tokens"),
        pytest.param({"ca_file": "file"}, "holds none in PEM format", id="authority"),
    ],
)
async def test_a_refused_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    path = wrong.pop("path", "queue")
    relay = RelaySettings(to="http://a/ https://b/", **wrong)  # type: ignore[arg-type]  # paths are text
    config = RelayConfig(relay=relay, exporter=ExporterSettings(queue=SendQueueSettings(path=path)))
    with pytest.raises(Misconfigured, match=said):
        await open_relay(config)
    assert names(tmp_path) == ["file"]


def shown(rig: OnDisk, name: str) -> float:
    """A number of the page of metrics."""
    lines = MetricsPage(rig.relay).text(open_metrics=False).splitlines()
    (line,) = (line for line in lines if line.startswith(f"forebay_relay_{name}{{"))
    return float(line.rpartition(" ")[2])


async def test_metrics_tell_what_is_damaged(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.mood = "refusing"
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url, compression="none") as rig:
            for name in NAMES[:3]:
                await rig.push(name)
            assert shown(rig, "fastqueue_corruption_total") == 0
        (chunk,) = [path for path in files(tmp_path) if path.suffix == ".chunk"]
        data = bytearray(chunk.read_bytes())
        data[data.find(NAMES[1].encode())] ^= 0xFF
        chunk.write_bytes(data)
        sink.mood = "good"
        async with on_disk(tmp_path, url, compression="none") as rig:
            await sink.until_all({NAMES[0], NAMES[2]}, 60)
            assert shown(rig, "fastqueue_corruption_total") == 1
    assert NAMES[1] not in sink.accepted


async def test_a_disk_that_cant_be_read_is_told_of_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    async with Sink() as sink:
        sink.mood = "refusing"
        small: dict[str, Any] = {"inmemory_blocks": 2, "durability": "interval"}
        async with on_disk(tmp_path, f"http://127.0.0.1:{sink.port}/", **small) as rig:
            (delivery,) = rig.relay.deliveries
            with monkeypatch.context() as broken:
                broken.setattr(delivery.queue._backing, "read", refuse)
                await rig.push(*NAMES)
                while not delivery.queue.problems:
                    await delivery.queue._next_round()
                (problem,) = rig.relay.problems()
                assert "doesn't give entries back" in problem
                assert "Too many open files" in problem
            sink.mood = "good"
            await sink.until_all(set(NAMES), 60)
            assert rig.relay.problems() == []


async def test_metrics_tell_what_is_on_disk(tmp_path: Path) -> None:
    def value(name: str) -> float:
        return shown(rig, name)

    small: dict[str, Any] = {
        "chunk_size": 1 << 14,
        "max_bytes": 1 << 20,
        "compression": "none",
        "inmemory_blocks": 4,
    }
    async with on_disk(tmp_path, "http://127.0.0.1:1/", durability="interval", **small) as rig:
        assert set(await rig.push(*NAMES, *NAMES, *NAMES, *NAMES)) == {202}
        assert value("fastqueue_disk_bytes") > 1 << 14
        assert value("fastqueue_chunk_rotations_total") >= 1
        assert value("fastqueue_meta_sync_total") >= 1
        assert value("fastqueue_inmemory_flushes_total") >= 1
        assert value("fastqueue_inmemory_blocks") <= 4
        assert value("queue_disk_available_bytes") > 0


async def test_destinations_share_what_the_disk_has_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealDisk, "free_bytes", lambda _: 3_000_000)
    urls = [f"http://127.0.0.1:{port}/" for port in (1, 2, 3)]

    def rooms(rig: OnDisk) -> list[int]:
        return [delivery.queue.room.bytes_max for delivery in rig.relay.deliveries]

    async with on_disk(tmp_path, *urls, compression="none") as rig:
        # Besides what is free each queue may have the few bytes that its folders hold by then.
        assert rooms(rig) == [pytest.approx(850_000, abs=1_000)] * 3
        rig.relay.deliveries[1].queue.dead_letters.add([bytes(300_000)])
    async with on_disk(tmp_path, *urls, compression="none") as rig:
        shares = [room + dead for room, dead in zip(rooms(rig), (0, 300_000, 0), strict=True)]
        assert shares == [pytest.approx(935_000, abs=1_000)] * 3


@pytest.mark.parametrize("kind", ["disk", "memory"])
@pytest.mark.parametrize("limit", [{"dead_size_max": 2}, {"dead_bytes_max": 250}])
async def test_dead_letters_are_bounded_as_the_settings_say(
    tmp_path: Path, kind: Literal["disk", "memory"], limit: dict[str, int]
) -> None:
    given = msgspec.structs.replace(SendQueueSettings(type=kind), **limit)
    queue = await storage.open_send_queue(tmp_path / "a", given.resolve(), clock=SystemClock().now)
    try:
        for _ in range(5):
            queue.dead_letters.add([bytes(100)])
        assert (queue.dead_count, queue.dead_letters.dropped) == (2, 3)
    finally:
        await queue.close()


@pytest.mark.parametrize("kind", ["disk", "memory"])
async def test_the_containers_limit_holds_for_the_queue_that_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Literal["disk", "memory"]
) -> None:
    monkeypatch.setattr(storage, "memory_limit", lambda: 100_000_000)
    given = SendQueueSettings(type=kind, durability="memory", compression="none")
    queue = await storage.open_send_queue(tmp_path / "a", given.resolve(), clock=SystemClock().now)
    try:
        for _ in range(40):
            await queue.push(bytes(500_000))
        if kind == "memory":
            assert queue.room.bytes_held <= queue.room.bytes_max == 8_500_000
        else:
            assert queue.room.bytes_held == 20_000_000
            assert queue.backing_counts().memory_blocks <= 17
    finally:
        await queue.close()
