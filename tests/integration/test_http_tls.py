"""TLS by certificate files: served, refused when spoken plainly, and closed in time."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.integration.http_wire import request
from tests.servers import ForebayServer


@pytest.fixture
def trust() -> trustme.CA:
    """Give an authority that signs the server's certificate."""
    return trustme.CA()


@pytest.fixture
def tls_server(trust: trustme.CA, tmp_path: Path) -> Iterator[ForebayServer]:
    """Give a server that speaks TLS."""
    issued = trust.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    context = ssl.create_default_context()
    trust.configure_trust(context)
    server = ForebayServer(tls_certificate=str(certificate), tls_key=str(key), tls=context)
    with server:
        yield server


def test_a_client_that_says_no_goodbye_does_not_hold_up_a_stop(
    tls_server: ForebayServer, trust: trustme.CA
) -> None:
    context = ssl.create_default_context()
    trust.configure_trust(context)
    with (
        socket.create_connection(("127.0.0.1", tls_server.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wire,
    ):
        wire.sendall(request("GET", "/healthz"))
        assert wire.recv(1_000).startswith(b"HTTP/1.1 200")
        tls_server.signal()
        assert tls_server.wait(15) == 0


def test_who_speaks_plainly_is_not_answered(tls_server: ForebayServer) -> None:
    with socket.create_connection(("127.0.0.1", tls_server.port), timeout=10) as plain:
        plain.sendall(request("GET", "/healthz"))
        assert plain.recv(100) == b""
