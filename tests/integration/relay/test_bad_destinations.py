"""Whatever a destination does, it is classified and bounded, and everything arrives once it is well."""

from pathlib import Path
from typing import Any

import pytest

from forebay.deliver.queue_settings import BreakerSettings
from tests.chaos.relay_parts import Mood, Sink, make_body
from tests.integration.relay.disk_rig import on_disk
from tests.servers.destination import DestinationServer, answer, answers

QUICK = BreakerSettings(reset_timeout=0.02)


@pytest.mark.parametrize(
    ("mood", "kinds"),
    [
        ("refusing", {"server_error"}),
        ("resetting", {"network"}),
        ("silent", {"timeout"}),
        ("garbage", {"network"}),
        ("endless", {"server_error"}),
    ],
)
async def test_everything_arrives_once_the_destination_is_well(
    tmp_path: Path, mood: Mood, kinds: set[str]
) -> None:
    names = [f"{number:04d}" for number in range(30)]
    async with Sink() as sink:
        sink.mood = mood
        url = f"http://127.0.0.1:{sink.port}/"
        times: dict[str, Any] = {"send_seconds": 0.3, "shutdown_seconds": 0.2} if mood == "silent" else {}
        async with on_disk(tmp_path, url, circuit_breaker=QUICK, **times) as rig:
            assert await rig.push(*names) == [202] * 30
            await sink.until_attempts(8)
            (delivery,) = rig.relay.deliveries
            assert set(delivery.counts.failures) <= kinds
            sink.mood = "good"
            await sink.until_all(set(names), 60)


async def test_a_destination_that_isnt_there_costs_nobody_a_request(tmp_path: Path) -> None:
    async with Sink() as sink:
        await sink.close()
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url, circuit_breaker=QUICK) as rig:
            assert await rig.push("a", "b") == [202, 202]
            (delivery,) = rig.relay.deliveries
            while not delivery.counts.failures["network"]:
                await delivery.queue._next_round()
            await sink.open()
            await sink.until_all({"a", "b"}, 60)


async def test_what_is_left_is_sent_after_a_restart_with_its_age(tmp_path: Path) -> None:
    async with Sink() as sink:
        sink.mood = "refusing"
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url) as rig:
            await rig.push("a", "b", "c")
            await sink.until_attempts(3)
        sink.mood = "good"
        async with on_disk(tmp_path, url) as rig:
            await sink.until_all({"a", "b", "c"}, 60)
        assert set(sink.accepted.values()) == {1}
        async with on_disk(tmp_path, url) as rig:
            (delivery,) = rig.relay.deliveries
            assert delivery.queue.size == 0


async def test_one_bad_destination_doesnt_hold_up_another(tmp_path: Path) -> None:
    async with Sink() as good, Sink() as bad:
        bad.mood = "silent"
        urls = [f"http://127.0.0.1:{sink.port}/" for sink in (good, bad)]
        names = [f"{number:04d}" for number in range(50)]
        async with on_disk(tmp_path, *urls, shutdown_seconds=0.2) as rig:
            assert await rig.push(*names) == [202] * 50
            await good.until_all(set(names), 60)
            assert rig.relay.deliveries[1].queue.size == 50


async def test_a_body_in_an_unknown_encoding_passes_untouched(tmp_path: Path) -> None:
    async with Sink() as sink, on_disk(tmp_path, f"http://127.0.0.1:{sink.port}/") as rig:
        await rig.push("a", **{"Content-Encoding": "x-unheard-of"})
        await sink.until_all({"a"}, 60)


async def test_two_relays_dont_share_a_folder(tmp_path: Path) -> None:
    async with Sink() as sink:
        url = f"http://127.0.0.1:{sink.port}/"
        async with on_disk(tmp_path, url):
            with pytest.raises(Exception, match="another process uses the queue folder"):
                async with on_disk(tmp_path, url):
                    pass


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_credential_is_an_outage_and_kills_nothing(tmp_path: Path, status: int) -> None:
    async with (
        DestinationServer(answers(answer(status))) as server,
        on_disk(tmp_path, server.url, circuit_breaker=QUICK) as rig,
    ):
        names = [f"{number:04d}" for number in range(30)]
        assert await rig.push(*names) == [202] * 30
        (delivery,) = rig.relay.deliveries
        while not delivery.admission.breaker.opened:
            await delivery.queue._next_round()
        assert (delivery.queue.dead_count, delivery.queue.size) == (0, 30)
        server.behaviour = answers(answer(200))
        while delivery.queue.size:
            await delivery.queue._next_round()
        assert {*server.bodies} == {make_body(name, 100) for name in names}
        assert delivery.queue.dead_count == 0


@pytest.mark.parametrize(
    ("status", "settings", "headers"),
    [
        pytest.param(401, {"retry_auth": False}, {}, id="asked-for"),
        pytest.param(401, {}, {"Authorization": "Bearer of-the-client"}, id="the-clients-own"),
        pytest.param(404, {}, {}, id="not-found"),
    ],
)
async def test_what_waiting_cant_mend_is_a_dead_letter(
    tmp_path: Path, status: int, settings: dict[str, bool], headers: dict[str, str]
) -> None:
    async with (
        DestinationServer(answers(answer(status))) as server,
        on_disk(tmp_path, server.url, **settings) as rig,
    ):
        await rig.push("a", **headers)
        (delivery,) = rig.relay.deliveries
        while not delivery.queue.dead_count:
            await delivery.queue._next_round()
        assert len(server.received) == 1
        assert delivery.admission.breaker.opened == 0
