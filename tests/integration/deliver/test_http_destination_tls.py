"""TLS: a destination is who it says it is, and knows us where it asks."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from forebay.deliver.http.tls import client_context
from forebay.deliver.settings import TlsSettings
from forebay.deliver.values import ErrorClass
from forebay.model import Misconfigured
from tests.integration.deliver.sending import HANG_SECONDS, deliver, destination
from tests.servers.destination import DestinationServer


class Certificates:
    """An authority, a server's certificate for 127.0.0.1, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)
        self.client_file = str(folder / "client.pem")
        self.authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(
            self.client_file
        )

    def server(self, *names: str, authority: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (authority or self.authority).issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


async def test_a_destination_with_a_certificate_of_our_authority_is_trusted(
    certificates: Certificates,
) -> None:
    tls = TlsSettings(ca_file=certificates.ca_file)
    async with DestinationServer(tls=certificates.server()) as server, destination(server.url, tls=tls) as to:
        for _ in range(3):
            assert (await deliver(to, bytes(100_000))).is_delivered
        assert server.connections == 1


@pytest.mark.parametrize("wrong", ["name", "authority"])
async def test_a_certificate_that_does_not_match_is_a_network_failure(
    certificates: Certificates, wrong: str
) -> None:
    tls = TlsSettings(ca_file=certificates.ca_file)
    context = (
        certificates.server("elsewhere.example")
        if wrong == "name"
        else certificates.server(authority=trustme.CA())
    )
    async with DestinationServer(tls=context) as server, destination(server.url, tls=tls) as to:
        outcome = await deliver(to)
        assert (outcome.error_class, outcome.is_retried) == (ErrorClass.NETWORK, True)
        assert "certificate" in outcome.reason
        assert server.received == []


async def test_a_destination_that_asks_for_a_certificate_gets_ours(certificates: Certificates) -> None:
    context = certificates.server()
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority.configure_trust(context)
    both = TlsSettings(ca_file=certificates.ca_file, cert_file=certificates.client_file)
    without = TlsSettings(ca_file=certificates.ca_file)
    async with DestinationServer(tls=context) as server:
        async with destination(server.url, tls=both) as to:
            assert (await deliver(to)).is_delivered
        async with destination(server.url, tls=without) as to:
            assert (await deliver(to)).error_class is ErrorClass.NETWORK


async def test_plain_http_at_a_tls_port_and_the_other_way_round_are_network_failures(
    certificates: Certificates,
) -> None:
    tls = TlsSettings(ca_file=certificates.ca_file)
    async with DestinationServer(tls=certificates.server()) as server, DestinationServer() as plain:
        async with destination(server.url.replace("https", "http")) as to:
            assert (await deliver(to)).error_class is ErrorClass.NETWORK
        async with destination(
            plain.url.replace("http", "https"), tls=tls, timeout_seconds=HANG_SECONDS
        ) as to:
            assert (await deliver(to)).error_class in {ErrorClass.NETWORK, ErrorClass.TIMEOUT}


async def test_a_handshake_that_hangs_times_out(certificates: Certificates) -> None:
    over = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, destination(url, connect_seconds=HANG_SECONDS) as to:
        outcome = await deliver(to)
        over.set()
    assert outcome.error_class is ErrorClass.TIMEOUT
    assert certificates.ca_file


@pytest.mark.parametrize("key", ["ca_file", "cert_file"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, key: str) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    for file in (bad, tmp_path / "absent.pem"):
        with pytest.raises(Misconfigured, match=str(file)) as caught:
            client_context(TlsSettings(**{key: str(file)}))
        assert caught.value.key == key
