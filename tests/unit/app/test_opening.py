"""Opening a store by its address: which log, which warm tier, and what is said of a bad one."""

import pytest

import forebay
from forebay.app.opening import open_embedded
from forebay.log.memory import MemoryLog
from forebay.model import Misconfigured
from forebay.warm.valkey import ValkeyWarm


def test_the_warm_tier_is_this_process_unless_the_address_names_another() -> None:
    store = open_embedded("memory://")
    assert isinstance(store.log, MemoryLog)
    assert store._shared is None
    for named in (
        open_embedded("memory://?warm=valkey://127.0.0.1:6379/3"),
        open_embedded("memory://", warm="redis://127.0.0.1:6379"),
    ):
        assert isinstance(named._shared, ValkeyWarm)


def test_other_parameters_stay_in_the_address_of_the_log() -> None:
    store = open_embedded("postgresql://me@127.0.0.1/db?application_name=a%20b&warm=valkey://127.0.0.1:1")
    assert "application_name=a" in store.log._database._dsn  # type: ignore[attr-defined]
    assert "warm" not in store.log._database._dsn  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("url", "warm", "words"),
    [
        ("memory://", "memcached://x", "no warm tier for memcached://; use one of valkey://"),
        ("memory://?warm=valkey://a", "valkey://b", "given twice"),
        ("mysql://x", None, "no log for mysql://"),
    ],
)
def test_a_bad_address_is_named(url: str, warm: str | None, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        open_embedded(url, warm=warm)


async def test_the_package_opens_a_store_at_once() -> None:
    async with forebay.open("memory://") as store:
        await store.create_queue("orders")
        await store.put_task("orders", b"x")
        assert [task.data for task in await store.get_task("orders")] == [b"x"]


@pytest.mark.parametrize("url", ["tarantool://me:se#cret@host:3301", "tarantool://me:secret@host/x"])
def test_an_address_that_can_not_be_read_is_said_without_its_password(url: str) -> None:
    pytest.importorskip("asynctnt")
    with pytest.raises(Misconfigured, match="no address of a Tarantool") as caught:
        open_embedded(url)
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None
