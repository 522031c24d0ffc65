"""A queue's size follows from the memory and the disk there are, before it opens."""

from pathlib import Path

import pytest

from forebay.deliver.queue_settings import AdaptiveWorkerSettings, SendQueueSettings
from forebay.deliver.sizes import MEMORY_BYTES, Sizes, memory_limit, plan, sizes
from forebay.model import Misconfigured


def cgroups(folder: Path, membership: str, files: dict[str, str]) -> int | None:
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "self").write_text(membership)
    return memory_limit(folder / "cgroup", folder / "self")


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1073741824\n"}, 1 << 30),
        ("0::/\n", {"memory.max": "max\n"}, None),
        (
            "0::/pod/app\n",
            {"memory.max": "max\n", "pod/memory.max": "512\n", "pod/app/memory.max": "max"},
            512,
        ),
        ("0::/pod/app\n", {"pod/memory.max": "900\n", "pod/app/memory.max": "500"}, 500),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "2048\n"}, 2048),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("4:cpu,memory:/app\n", {"memory/app/memory.limit_in_bytes": "77"}, 77),
        ("4:cpu:/app\n", {"memory/app/memory.limit_in_bytes": "77"}, None),
        ("0::/../../x\n", {"memory.max": "5"}, 5),
        ("broken", {"memory.max": "junk"}, None),
        ("", {}, None),
    ],
)
def test_the_memory_limit_is_the_lowest_of_both_versions(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None
) -> None:
    assert cgroups(tmp_path, membership, files) == limit


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path / "neither") is None


def test_memory_follows_from_the_containers_limit() -> None:
    found = sizes(SendQueueSettings(), memory_limit=1_000_000_000, disk_bytes=None)
    assert found.memory_bytes == 85_000_000
    assert found.max_bytes == 1 << 30
    halved = SendQueueSettings(memory_percent=0.2, memory_limit_ratio=0.5)
    assert sizes(halved, memory_limit=1_000_000_000, disk_bytes=None).memory_bytes == 100_000_000


def test_memory_without_a_limit_or_a_percentage_is_the_default() -> None:
    assert sizes(SendQueueSettings(), memory_limit=None, disk_bytes=None).memory_bytes == MEMORY_BYTES
    off = SendQueueSettings(memory_percent=0)
    assert sizes(off, memory_limit=1 << 30, disk_bytes=None).memory_bytes == MEMORY_BYTES


def test_a_queue_in_memory_holds_what_memory_allows() -> None:
    memory = SendQueueSettings(type="memory")
    found = sizes(memory, memory_limit=1_000_000_000, disk_bytes=10)
    assert found.max_bytes == found.memory_bytes == 85_000_000
    assert sizes(memory, memory_limit=None, disk_bytes=10).max_bytes == 1 << 30


def test_a_queue_on_disk_holds_what_the_disk_has_room_for() -> None:
    assert sizes(SendQueueSettings(), memory_limit=None, disk_bytes=1000).max_bytes == 850
    assert sizes(SendQueueSettings(), memory_limit=None, disk_bytes=1 << 40).max_bytes == 1 << 30
    fixed = SendQueueSettings(adaptive_enabled=False)
    assert sizes(fixed, memory_limit=None, disk_bytes=1000).max_bytes == 1 << 30
    half = SendQueueSettings(target_utilization=0.5)
    assert sizes(half, memory_limit=None, disk_bytes=1000).max_bytes == 500


def test_zero_stands_for_some_per_cpu() -> None:
    made = SendQueueSettings().resolve(cpus=3)
    assert (made.workers, made.global_send_limit) == (6, 24)
    assert (made.pipeline_split.preparer_count, made.pipeline_split.sender_count) == (3, 6)
    assert made.adaptive_workers.max_workers == 12
    given = SendQueueSettings(workers=5, global_send_limit=7).resolve(cpus=3)
    assert (given.workers, given.global_send_limit) == (5, 7)


def unlimited(settings: SendQueueSettings) -> Sizes:
    return sizes(settings, memory_limit=None, disk_bytes=None)


def test_destinations_share_disk_and_memory() -> None:
    settings = SendQueueSettings()
    each = sizes(settings, memory_limit=3_000_000_000, disk_bytes=3000, destinations=3, dead_bytes=50)
    assert each.max_bytes == 850 - 50
    each = sizes(settings, memory_limit=3_000_000_000, disk_bytes=None, destinations=3)
    assert each.memory_bytes == 85_000_000
    assert sizes(settings, memory_limit=None, disk_bytes=None, destinations=4).memory_bytes == 25_000_000
    assert sizes(settings, memory_limit=None, disk_bytes=100, dead_bytes=500).max_bytes == 1


def test_the_formula_of_the_original() -> None:
    settings = SendQueueSettings(workers=8, max_size=10_000).resolve()
    found = plan(settings, unlimited(settings), entry_bytes=50_000, latency_seconds=0.05)
    assert found.drain_per_second == pytest.approx(160)
    assert found.drain_seconds == pytest.approx(62.5)
    assert found.memory_bytes == MEMORY_BYTES < 2048 * 50_000
    small = plan(settings, unlimited(settings), entry_bytes=1000, latency_seconds=0.05)
    assert small.memory_bytes == 2048 * 1000
    assert found.catch_up_seconds == pytest.approx(62.5)
    assert found.outage_seconds is None


def test_a_plan_with_traffic_says_how_long_an_outage_may_last() -> None:
    settings = SendQueueSettings(workers=8, max_bytes=1_000_000).resolve()
    found = plan(
        settings, unlimited(settings), entry_bytes=1000, latency_seconds=0.05, arriving_per_second=100
    )
    assert found.entries == 1000
    assert found.outage_seconds == pytest.approx(10)
    assert found.catch_up_seconds == pytest.approx(1000 / 60)
    faster = plan(
        settings, unlimited(settings), entry_bytes=1000, latency_seconds=0.05, arriving_per_second=160
    )
    assert faster.catch_up_seconds is None


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Misconfigured, match="less than retry_interval"):
        SendQueueSettings(max_retry_delay=1.0)
    with pytest.raises(Misconfigured, match="set it to 5 or more") as caught:
        AdaptiveWorkerSettings(min_workers=5, max_workers=4)
    assert caught.value.key == "max_workers"
