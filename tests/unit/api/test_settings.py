"""Where the server listens, and when it refuses to."""

import re
from typing import Any

import msgspec
import pytest

from forebay.api.settings import ServerLimits, ServerSettings, check_exposure
from forebay.model import Misconfigured
from forebay.wire.port import split_listen


@pytest.mark.parametrize(
    ("listen", "place"),
    [
        ("127.0.0.1:6632", ("127.0.0.1", 6632)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ],
)
def test_an_address_is_host_and_port(listen: str, place: tuple[str, int]) -> None:
    made = msgspec.convert({"listen": listen}, ServerSettings)
    assert split_listen(made.listen) == place


@pytest.mark.parametrize(
    "listen", ["", "6632", ":6632", "host", "host:", "host:65536", "host:99999", "::1:80", "a b:1", "h:08"]
)
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"listen": listen}, ServerSettings)


@pytest.mark.parametrize("port", [0, 1, 9, 10, 99, 999, 1000, 6632, 9999, 10000, 59999, 64999, 65535])
def test_every_port_there_is_may_be_listened_on(port: int) -> None:
    assert msgspec.convert({"listen": f"h:{port}"}, ServerSettings).listen == f"h:{port}"


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "LOCALHOST:1"])
def test_loopback_needs_no_keys(listen: str) -> None:
    check_exposure(ServerSettings(listen=listen), guarded=False)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example:1", "localhost.example:1"])
def test_beyond_loopback_there_must_be_keys_unless_insecure_is_said(listen: str) -> None:
    with pytest.raises(Misconfigured, match=rf"{re.escape(listen)}.*forebay keys create.*--insecure"):
        check_exposure(ServerSettings(listen=listen), guarded=False)
    check_exposure(ServerSettings(listen=listen), guarded=True)
    check_exposure(ServerSettings(listen=listen, insecure=True), guarded=False)


@pytest.mark.parametrize(
    ("given", "missing"), [("tls_key", "tls_certificate"), ("tls_certificate", "tls_key")]
)
def test_half_of_a_certificate_is_refused(given: str, missing: str) -> None:
    half: dict[str, Any] = {given: "file.pem"}
    with pytest.raises(Misconfigured, match="set both") as caught:
        ServerSettings(**half)
    assert caught.value.key == missing


def test_the_largest_body_fits_among_those_being_worked_on() -> None:
    with pytest.raises(Misconfigured, match="pending_bytes_max"):
        ServerLimits(body_bytes_max=2 << 20, pending_bytes_max=1 << 20)


@pytest.mark.parametrize("host", ["queues.example.com", "localhost:3000", "[::1]:3000", "10.0.0.1"])
def test_hosts_are_names_with_or_without_ports(host: str) -> None:
    assert ServerSettings(hosts=(host,)).hosts == (host,)


@pytest.mark.parametrize("host", ["https://queues.example.com", "a b", "", "name:", "name/path", "user@name"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(Misconfigured, match="not a name") as refused:
        ServerSettings(hosts=(host,))
    assert refused.value.key == "hosts"
