"""Destinations with options of their own: headers, secrets, rates and limits, each for itself."""

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path

import pytest
import trustme

from forebay.deliver.settings import TlsSettings
from forebay.model import Misconfigured
from forebay.relay.destinations import RelayAuthSettings, RelayDestinationSettings
from tests.integration.relay.disk_rig import OnDisk, on_disk
from tests.servers.destination import DestinationServer, Received, answer


async def sent(rig: OnDisk) -> None:
    """Wait until nothing is queued."""
    for delivery in rig.relay.deliveries:
        while delivery.queue.size:
            await delivery.queue._next_round()


async def test_each_destination_has_its_headers_and_its_authorization(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("a-token\n")
    password.write_text("a-password\n")
    async with DestinationServer() as plain, DestinationServer() as mimir, DestinationServer() as archive:
        destinations = {
            "mimir": RelayDestinationSettings(
                url=mimir.url,
                headers={"X-Scope-OrgID": "team-a"},
                auth=RelayAuthSettings(bearer_file=str(token)),
            ),
            "archive": RelayDestinationSettings(
                url=archive.url, auth=RelayAuthSettings(user="me", password_file=str(password))
            ),
        }
        async with on_disk(tmp_path / "queue", plain.url, destinations=destinations) as rig:
            given = {"Authorization": "Bearer of-the-client", "X-Scope-OrgID": "of-the-client"}
            assert await rig.push("a", **given) == [202]
            await sent(rig)
    by_client, by_bearer, by_password = (server.received[0].headers for server in (plain, mimir, archive))
    assert by_client["authorization"] == "Bearer of-the-client"
    assert by_client["x-scope-orgid"] == by_password["x-scope-orgid"] == "of-the-client"
    assert by_bearer["authorization"] == "Bearer a-token"
    assert by_bearer["x-scope-orgid"] == "team-a"
    assert by_password["authorization"] == "Basic " + b64encode(b"me:a-password").decode()


async def test_a_secret_is_read_again_when_its_file_changes_and_stays_when_that_is_bad(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with DestinationServer() as server:
        auth = RelayAuthSettings(bearer_file=str(token))
        destinations = {"one": RelayDestinationSettings(url=server.url, auth=auth)}
        async with on_disk(tmp_path / "queue", destinations=destinations) as rig:
            (secrets,) = rig.relay._secrets
            for text in ("first", "second-one", "", "third-one-of-all"):
                token.write_text(text)
                secrets.look()
                await rig.push("a")
                await sent(rig)
        shown = [got.headers["authorization"] for got in server.received]
    assert shown == ["Bearer first", "Bearer second-one", "Bearer second-one", "Bearer third-one-of-all"]
    assert "stays as it was" in caplog.text
    assert "second-one" not in caplog.text


async def test_concurrency_and_rate_hold_for_one_destination_alone(tmp_path: Path) -> None:
    gate, most, busy = asyncio.Event(), 0, 0

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal most, busy
        busy += 1
        most = max(most, busy)
        await gate.wait()
        busy -= 1
        writer.write(answer())

    async with DestinationServer(slow) as narrow, DestinationServer() as limited:
        destinations = {
            "narrow": RelayDestinationSettings(url=narrow.url, concurrency=2),
            "limited": RelayDestinationSettings(url=limited.url, requests_per_second=0.001, burst=3),
        }
        async with on_disk(tmp_path, destinations=destinations, workers=6, shutdown_seconds=1.0) as rig:
            await rig.push(*map(str, range(8)))
            slow_one, paced = rig.relay.deliveries
            while slow_one.in_flight < 2 or paced.queue.size > 5:
                await paced.queue._next_round()
            gate.set()
            while slow_one.queue.size:
                await slow_one.queue._next_round()
            assert most == 2
            assert (len(limited.received), paced.queue.size) == (3, 5)


async def test_each_destination_trusts_its_own_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    async with DestinationServer(tls=context) as server, DestinationServer() as plain:
        tls = TlsSettings(ca_file=str(file))
        destinations = {"safe": RelayDestinationSettings(url=server.url, tls=tls, timeout_seconds=30.0)}
        async with on_disk(tmp_path / "queue", plain.url, destinations=destinations) as rig:
            await rig.push("a")
            await sent(rig)
        assert len(server.received) == len(plain.received) == 1


@pytest.mark.parametrize("text", [None, "", "two\nlines", "caf\u00e9", "x" * 100_000])
async def test_a_bad_secret_refuses_the_start_and_leaves_nothing(tmp_path: Path, text: str | None) -> None:
    token = tmp_path / "token"
    if text is not None:
        token.write_text(text)
    auth = RelayAuthSettings(bearer_file=str(token))
    destinations = {"one": RelayDestinationSettings(url="http://127.0.0.1:1/", auth=auth)}
    with pytest.raises(Misconfigured) as caught:
        async with on_disk(tmp_path / "queue", destinations=destinations):
            pass
    assert caught.value.key == "relay.destinations.one.auth.bearer_file"
    assert "lines" not in str(caught.value)
    assert not (tmp_path / "queue").exists()


async def test_an_address_is_there_once(tmp_path: Path) -> None:
    destinations = {"one": RelayDestinationSettings(url="http://127.0.0.1:1/")}
    with pytest.raises(Misconfigured, match="there twice"):
        async with on_disk(tmp_path, "http://127.0.0.1:1/", destinations=destinations):
            pass
