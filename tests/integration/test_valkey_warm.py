"""The warm tier on a real server that is flushed, restarted, stopped, silent, or not ours."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Thread

import pytest
import redis.asyncio
import uvloop

from forebay.model import Misconfigured, Unavailable
from forebay.warm.seam import EpochLost, WarmAway
from forebay.warm.valkey import ValkeyWarm
from forebay.warm.values import Shelf
from tests.awake import Awake
from tests.conformance.warm.steps import (
    LANES,
    PLAIN,
    counts,
    fill,
    parcel_of,
    started,
    take,
    texts,
    wanted_of,
)
from tests.servers import FaultProxy, ServerUnavailableError, ValkeyServer, Verdict, absent

PATIENCE = 20.0
"""Seconds after which what should happen at once isn't going to."""


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """Give a server that the test may stop."""
    try:
        server = ValkeyServer()
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    with server:
        yield server


class Announced:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[tuple[int, int | None]] = asyncio.Queue()
        self.partitions: list[Collection[str] | None] = []

    def __call__(self, queue: int, group: int | None, partitions: Collection[str] | None) -> None:
        """Hear something."""
        self._heard.put_nowait((queue, group))
        self.partitions.append(partitions)

    async def next(self) -> tuple[int, int | None]:
        """What was heard next."""
        async with asyncio.timeout(PATIENCE):
            return await self._heard.get()


@asynccontextmanager
async def listening(warm: ValkeyWarm) -> AsyncIterator[Announced]:
    """Listen, from the moment on when the server knows of it."""
    announced = Announced()
    warm.listen(announced)
    await hearing(warm)
    yield announced


async def hearing(warm: ValkeyWarm) -> None:
    """Wait until the server knows that we listen."""
    async with asyncio.timeout(PATIENCE):
        await warm._ears.hearing.wait()


async def until_deaf(warm: ValkeyWarm) -> None:
    """Wait until we have noticed that the subscription is lost."""
    async with asyncio.timeout(PATIENCE):
        await warm._ears.deaf.wait()


# Loss


async def test_a_flush_is_noticed(own_valkey: ValkeyServer) -> None:
    async with ValkeyWarm(own_valkey.url) as warm:
        epoch = await started(warm, PLAIN, parcel_of(1, 3))
        out = await take(warm, PLAIN, epoch, 1)
        own_valkey.flush()
        assert await warm.epoch(PLAIN) is None
        assert await warm.held(PLAIN, wanted_of(out)) == {}
        with pytest.raises(EpochLost):
            await take(warm, PLAIN, epoch, 1)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_restart_is_noticed_though_the_data_is_on_disk(own_valkey: ValkeyServer, end: str) -> None:
    """What is on disk may be of a second ago: leases and parcels of that second would be missing."""
    async with ValkeyWarm(own_valkey.url) as warm:
        epoch = await started(warm, LANES, parcel_of(1, 3, partition="p"))
        out = await take(warm, LANES, epoch, 1)
        await asyncio.to_thread(own_valkey.stop if end == "stop" else own_valkey.kill)
        await asyncio.to_thread(own_valkey.start)
        assert await warm.epoch(LANES) is None
        assert await warm.held(LANES, wanted_of(out)) == {}
        assert await counts(warm, LANES) == (0, 0, 0)
        with pytest.raises(EpochLost):
            await take(warm, LANES, epoch, 1)
        renewed = await warm.renew(LANES, epoch)
        assert renewed != epoch
        assert await take(warm, LANES, renewed, 9) == []
        assert await fill(warm, LANES, renewed, parcel_of(1, 3, partition="p")) == []
        assert texts(await take(warm, LANES, renewed, 9)) == ["1/0", "1/1", "1/2"]


@pytest.mark.parametrize("part", ["bodies", "parcels", "leases"])
async def test_a_part_that_was_deleted_is_noticed(valkey_url: str, part: str) -> None:
    async with (
        ValkeyWarm(valkey_url) as warm,
        redis.asyncio.Redis.from_url(valkey_url) as client,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1), parcel_of(2))
        await take(warm, PLAIN, epoch, 1, seconds=0)
        assert await client.delete(f"forebay:{{orders/billing#7}}:{part}") == 1
        with pytest.raises(EpochLost):
            await warm.expire(PLAIN, epoch, 9, 9)
        assert await warm.epoch(PLAIN) is None
        await warm.renew(PLAIN, epoch)
        assert await counts(warm, PLAIN) == (0, 0, 0)


async def test_flushed_scripts_are_brought_again(own_valkey: ValkeyServer) -> None:
    async with (
        ValkeyWarm(own_valkey.url) as warm,
        redis.asyncio.Redis.from_url(own_valkey.url) as client,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1, 3))
        await client.script_flush()
        assert texts(await take(warm, PLAIN, epoch, 9)) == ["1/0", "1/1", "1/2"]
        assert await warm.epoch(PLAIN) == epoch


async def test_a_body_is_sent_once_to_whoever_takes_it_in_parts(valkey_url: str) -> None:
    async with (
        ValkeyWarm(valkey_url) as warm,
        redis.asyncio.Redis.from_url(valkey_url) as client,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1, 3))
        assert texts(await take(warm, PLAIN, epoch, 1)) == ["1/0"]
        await client.delete("forebay:{orders/billing#7}:bodies")
        assert texts(await take(warm, PLAIN, epoch, 1)) == ["1/1"]


# Out of reach


async def test_a_server_that_is_down_is_unavailable_and_then_works_again(
    own_valkey: ValkeyServer, awake: Awake
) -> None:
    async with ValkeyWarm(own_valkey.url, timeout_seconds=2.0) as warm:
        epoch = await started(warm, PLAIN, parcel_of(1))
        own_valkey.kill()
        for _ in range(3):
            began = awake()
            with pytest.raises(Unavailable) as caught:
                await take(warm, PLAIN, epoch, 1)
            assert awake() - began < 4
            assert str(own_valkey.port) in str(caught.value)
        with pytest.raises(Unavailable):
            await warm.announce(1)
        own_valkey.start()
        assert await warm.epoch(PLAIN) is None
        assert await started(warm, PLAIN, parcel_of(1)) != epoch


async def test_a_tier_opens_while_its_server_is_down(own_valkey: ValkeyServer) -> None:
    own_valkey.stop()
    async with ValkeyWarm(own_valkey.url) as warm:
        with pytest.raises(Unavailable):
            await warm.epoch(PLAIN)
        own_valkey.start()
        assert await warm.epoch(PLAIN) is None


async def test_a_silent_server_is_unavailable_within_the_bound(
    valkey_server: ValkeyServer, awake: Awake
) -> None:
    async with (
        FaultProxy(valkey_server.port) as proxy,
        ValkeyWarm(f"redis://127.0.0.1:{proxy.port}/0", prefix="silent", timeout_seconds=0.3) as warm,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1))
        proxy.blackhole()
        began = awake()
        with pytest.raises(Unavailable, match=r"doesn't answer within 0\.3 seconds"):
            await take(warm, PLAIN, epoch, 1)
        assert awake() - began < 3
        proxy.heal()
        assert await warm.epoch(PLAIN) == epoch


async def test_cut_connections_are_replaced(valkey_server: ValkeyServer) -> None:
    async with (
        FaultProxy(valkey_server.port) as proxy,
        ValkeyWarm(f"redis://127.0.0.1:{proxy.port}/0", prefix="cut") as warm,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1, 5))
        await asyncio.gather(*(take(warm, PLAIN, epoch, 1) for _ in range(3)))
        proxy.cut()
        found = []
        for _ in range(4):
            try:
                found += await take(warm, PLAIN, epoch, 9)
            except Unavailable:
                continue
        assert texts(found) == ["1/3", "1/4"]


@contextmanager
def resetting() -> Iterator[int]:
    """Give the port of a server in another thread that resets every connection at once."""

    def reset() -> None:
        with suppress(OSError):  # it is over
            while True:
                connection, _ = door.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = Thread(target=reset)
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_connections_that_are_reset_are_a_tier_that_is_away_on_uvloop_too() -> None:
    async def talk(port: int) -> None:
        for _ in range(100):
            async with ValkeyWarm(f"redis://127.0.0.1:{port}/0") as warm:
                assert warm.problem is not None
        async with ValkeyWarm(f"redis://127.0.0.1:{port}/0") as warm:
            for _ in range(300):
                with pytest.raises(WarmAway):
                    await warm.epoch(PLAIN)
                with pytest.raises(WarmAway):
                    await warm.announce(1)

    with resetting() as port:
        uvloop.run(talk(port))


async def test_a_server_without_memory_takes_no_more_but_lets_go(own_valkey: ValkeyServer) -> None:
    async with (
        ValkeyWarm(own_valkey.url) as warm,
        redis.asyncio.Redis.from_url(own_valkey.url) as client,
    ):
        epoch = await started(warm, LANES, parcel_of(1, 3, partition="p"))
        begun = await warm.begin(LANES, epoch)
        assert begun is not None
        await client.config_set("maxmemory", 1)
        with pytest.raises(Unavailable, match="out of reach"):
            await warm.offer(LANES, begun, [parcel_of(2, partition="p")])
        await warm.end(LANES, begun)
        with pytest.raises(Unavailable):
            await warm.begin(LANES, epoch)
        (out,) = await take(warm, LANES, epoch, 9)
        assert await warm.extend(LANES, [out.lease], 0) == []
        (taken,) = await warm.expire(LANES, epoch, 9, 60)
        await warm.release(LANES, {taken.lease: [2]})
        await warm.finish(LANES, {taken.lease: [0, 1]})
        await warm.finish(LANES, wanted_of(await warm.withdraw(LANES, epoch, "p")))
        stats = await warm.stats(LANES)
        assert (stats.messages, stats.bytes) == (0, 0)


async def test_a_replica_is_unavailable(own_valkey: ValkeyServer) -> None:
    async with (
        ValkeyWarm(own_valkey.url) as warm,
        redis.asyncio.Redis.from_url(own_valkey.url) as client,
    ):
        epoch = await started(warm, PLAIN, parcel_of(1))
        await client.config_set("replica-serve-stale-data", "yes")
        await client.replicaof("127.0.0.1", 1)
        with pytest.raises(Unavailable):
            await take(warm, PLAIN, epoch, 1)


# Misconfigured


async def test_a_wrong_password_is_misconfigured_and_not_shown() -> None:
    with ValkeyServer() as server:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await client.config_set("requirepass", "right")
            place = f"127.0.0.1:{server.port}"
            for url in (f"valkey://:secret-word@{place}/0", f"valkey://{place}/0"):
                with pytest.raises(Misconfigured) as caught:
                    await ValkeyWarm(url).__aenter__()
                assert "secret-word" not in str(caught.value)
                with pytest.raises(Unavailable) as refused:
                    await ValkeyWarm(url).epoch(PLAIN)
                assert "secret-word" not in str(refused.value)
                assert "password" in str(refused.value.hint)
            async with ValkeyWarm(f"valkey://:right@{place}/0") as warm:
                assert await warm.epoch(PLAIN) is None


async def test_a_database_that_is_not_there_is_misconfigured(valkey_server: ValkeyServer) -> None:
    with pytest.raises(Misconfigured):
        await ValkeyWarm(f"redis://127.0.0.1:{valkey_server.port}/999").__aenter__()


async def test_databases_are_apart(valkey_url: str) -> None:
    async with ValkeyWarm(valkey_url) as warm, ValkeyWarm(valkey_url[:-1] + "1") as other:
        await started(warm, PLAIN, parcel_of(1))
        assert await other.epoch(PLAIN) is None


async def test_a_server_that_evicts_any_key_is_misconfigured() -> None:
    with (
        ValkeyServer(settings={"maxmemory-policy": "allkeys-lru"}) as server,
        pytest.raises(Misconfigured, match="allkeys-lru"),
    ):
        await ValkeyWarm(server.url).__aenter__()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://localhost:6379",
        "valkey://",
        "redis://host:port/0",
        "redis://host/name",
        "redis://[",
    ],
)
def test_a_bad_address_is_misconfigured(url: str) -> None:
    with pytest.raises(Misconfigured):
        ValkeyWarm(url)


def test_a_bad_prefix_is_misconfigured() -> None:
    with pytest.raises(Misconfigured):
        ValkeyWarm("redis://localhost", prefix="a{b}")


def test_without_redis_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(Misconfigured) as caught:
        ValkeyWarm("redis://localhost")
    assert caught.value.hint == "pip install 'forebay[valkey]'"


def test_its_name_is_that_of_its_prefix() -> None:
    warm = ValkeyWarm("redis://localhost", prefix="some/prefix")
    assert (warm.name, warm.shared) == ("valkey/some/prefix", True)


# Several servers


async def test_what_one_server_announces_the_others_hear(valkey_url: str) -> None:
    async with (
        ValkeyWarm(valkey_url) as warm,
        ValkeyWarm(valkey_url) as other,
        ValkeyWarm(valkey_url, prefix="elsewhere") as stranger,
        listening(other) as announced,
    ):
        await stranger.announce(99)
        await warm.announce(12)
        assert await announced.next() == (12, None)
        await warm.announce(12, ["p", 'ü "[x]'])
        assert await announced.next() == (12, None)
        await warm.announce(12, [str(n) for n in range(5_000)])
        assert await announced.next() == (12, None)
        assert announced.partitions == [None, ["p", 'ü "[x]'], None]
        await started(warm, PLAIN, parcel_of(1))
        assert await announced.next() == (PLAIN.queue, PLAIN.group)
        epoch = await other.epoch(PLAIN)
        assert epoch is not None
        assert texts(await take(other, PLAIN, epoch, 9)) == ["1/0"]


async def test_a_listener_that_fails_and_nonsense_on_the_channel_end_nothing(valkey_url: str) -> None:
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def fails(queue: int, group: int | None, _: Collection[str] | None) -> None:
        raise ValueError(queue, group)

    async with (
        ValkeyWarm(valkey_url) as warm,
        redis.asyncio.Redis.from_url(valkey_url) as client,
    ):
        warm.listen(fails)
        async with listening(warm) as announced:
            for nonsense in ("", "x", "1 x", b"\xff"):
                await client.publish("forebay:announcements", nonsense)
            await warm.announce(1)
            await warm.announce(2)
            assert [await announced.next(), await announced.next()] == [(1, None), (2, None)]
    assert [str(error) for error in failed] == ["(1, None)", "(2, None)"]


async def test_a_lost_subscription_comes_back(own_valkey: ValkeyServer) -> None:
    async with ValkeyWarm(own_valkey.url) as warm, listening(warm) as announced:
        own_valkey.kill()
        await until_deaf(warm)
        own_valkey.start()
        await hearing(warm)
        await warm.announce(3)
        assert await announced.next() == (3, None)


class Seen:
    """What went through a proxy, in SUBSCRIBEs and PINGs; `pinged` is set after some of those."""

    def __init__(self) -> None:
        self.subscriptions = self.pings = 0
        self.pinged = asyncio.Event()

    def __call__(self, chunk: bytes) -> Verdict:
        """See some bytes."""
        self.subscriptions += chunk.count(b"\r\nSUBSCRIBE\r\n")
        self.pings += chunk.count(b"\r\nPING\r\n")
        if self.pings > 3:
            self.pinged.set()
        return Verdict.FORWARD


async def test_a_quiet_subscription_is_asked_whether_it_lives(
    valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.warm.valkey.server._QUIET_SECONDS", 0.05)
    async with FaultProxy(valkey_server.port) as proxy:
        seen = Seen()
        proxy.on_client_bytes(seen)
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with ValkeyWarm(url, prefix="quiet") as warm, listening(warm) as announced:
            async with asyncio.timeout(PATIENCE):
                await seen.pinged.wait()
            assert seen.subscriptions == 1
            await warm.announce(1)
            assert await announced.next() == (1, None)
            proxy.blackhole()
            await until_deaf(warm)
            proxy.heal()
            await hearing(warm)
            await warm.announce(2)
            assert await announced.next() == (2, None)


@pytest.mark.parametrize("state", ["up", "down", "never up"])
async def test_closing_leaves_no_task_behind(own_valkey: ValkeyServer, state: str) -> None:
    before = asyncio.all_tasks()
    if state == "never up":
        own_valkey.kill()
    async with ValkeyWarm(own_valkey.url) as warm:
        warm.listen(Announced())
        if state != "never up":
            await hearing(warm)
        if state == "down":
            own_valkey.kill()
            await until_deaf(warm)
    assert asyncio.all_tasks() == before
    await warm.__aexit__(None, None, None)


async def test_a_tier_can_be_opened_again(valkey_url: str) -> None:
    warm = ValkeyWarm(valkey_url)
    async with warm:
        epoch = await started(warm, PLAIN, parcel_of(1))
    async with warm, listening(warm) as announced:
        assert await warm.epoch(PLAIN) == epoch
        await warm.announce(1)
        assert await announced.next() == (1, None)


class Load:
    """Four parcels for each of 50 partitions, brought and worked by whoever is asked to."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.parcels = [parcel_of(claim, 3, partition=f"p{claim % 50}") for claim in range(1, 201)]
        self.done: dict[str | None, list[int]] = {}
        self.count = 0

    async def bring(self, warm: ValkeyWarm, epoch: str) -> None:
        """Fill whenever there is room."""
        while self.parcels:
            begun = await warm.begin(self.shelf, epoch)
            if begun is None:
                continue
            if begun.messages + 6 <= self.shelf.messages_max:
                offered, self.parcels[:2] = self.parcels[:2], []
                assert await warm.offer(self.shelf, begun, offered) == []
            await warm.end(self.shelf, begun)

    async def work(self, warm: ValkeyWarm, epoch: str) -> None:
        """Take and finish until all is done."""
        while self.count < 600:
            leased = await warm.take(self.shelf, epoch, 4, "worker", 60)
            held = await warm.held(self.shelf, wanted_of(leased))
            for one in leased:
                ids = [one.lease.first + offset for offset in held[one.lease]]
                self.done.setdefault(one.parcel.partition, []).extend(ids)
                self.count += len(ids)
            assert (await warm.stats(self.shelf)).messages <= self.shelf.messages_max
            await warm.finish(self.shelf, held)


@pytest.mark.parametrize("shelf", [PLAIN, LANES], ids=["unordered", "ordered"])
async def test_servers_that_fill_and_work_at_once_do_each_message_once(valkey_url: str, shelf: Shelf) -> None:
    load = Load(shelf)
    async with ValkeyWarm(valkey_url) as warm, ValkeyWarm(valkey_url) as other:
        epoch = await warm.renew(shelf, None)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for one in (warm, other):
                tasks.create_task(load.bring(one, epoch))
                for _ in range(3):
                    tasks.create_task(load.work(one, epoch))
        assert await counts(other, shelf) == (0, 0, 0)
    found = list(load.done.values())
    assert len({message for ids in found for message in ids}) == load.count == 600
    if shelf.ordered:
        assert found == [sorted(ids) for ids in found]


# The server's own time, and other servers


@pytest.mark.parametrize("flavour", ["wheel", "debian"])
async def test_all_verbs_work_by_the_server_s_own_clock(flavour: str) -> None:
    if flavour not in ValkeyServer.flavours():
        absent(f"Valkey {flavour} is not on this machine")
    with ValkeyServer(flavour) as server:
        async with ValkeyWarm(server.url) as warm:
            for shelf in (PLAIN, LANES):
                parcels = parcel_of(1, 4, partition="p"), parcel_of(2, offsets=[1, 5, 6], partition="q")
                epoch = await started(warm, shelf, *parcels)
                (one,) = await warm.take(shelf, epoch, 3, "worker", 60)
                assert abs(one.since - time.time_ns() // 1_000) < 60_000_000
                assert one.deadline == one.since + 60_000_000 == await warm.next_expiry(shelf)
                assert await warm.held(shelf, {one.lease: [0, 2]}) == {one.lease: [0, 2]}
                await warm.finish(shelf, {one.lease: [0]})
                await warm.release(shelf, {one.lease: [1]})
                assert await warm.extend(shelf, [one.lease], -1) == []
                (expired,) = await warm.expire(shelf, epoch, 9, 60)
                assert expired.offsets() == [2]
                assert [running.lease for running in await warm.running(shelf)] == [expired.lease]
                await fill(warm, shelf, epoch, parcel_of(3, partition="p", noted=True))
                assert await counts(warm, shelf) == (5, 1, 1)
                withdrawn = await warm.withdraw(shelf, epoch, "p")
                assert len(withdrawn) == (3 if shelf.ordered else 0)


async def test_an_abandoned_fill_leaves_a_doubt_by_the_server_s_own_clock(valkey_url: str) -> None:
    async with ValkeyWarm(valkey_url, fill_seconds=0.0) as warm:
        epoch = await warm.renew(PLAIN, None)
        assert await warm.begin(PLAIN, epoch) is not None
        fill = await warm.begin(PLAIN, epoch)
        assert fill is not None
        assert fill.doubt
