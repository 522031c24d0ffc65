"""Addresses, keys and names: what is wrong is said, and what is secret is not."""

from pathlib import Path

import pytest

from forebay.client import Client, SyncClient
from forebay.client.address import parse_server, part
from forebay.model import Misconfigured, Rejected


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://127.0.0.1:6632", "http://127.0.0.1:6632"),
        ("http://127.0.0.1:6632/", "http://127.0.0.1:6632"),
        ("https://queue.example/forebay/", "https://queue.example/forebay"),
        ("http://[::1]:6632", "http://[::1]:6632"),
    ],
)
def test_an_address_is_taken_without_its_last_slash(url: str, server: str) -> None:
    assert parse_server(url) == server


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:6632", "http://", "ftp://x", "http://x:port", "http://x:99999", "http://x?a=b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="address of a server"):
        Client(url)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(Misconfigured, match="key=") as caught:
        Client("http://user:s3cret@x")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " s3cret", "s3\ncret", "s3crét"])
def test_a_key_that_can_not_be_sent_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(Misconfigured, match="forebay keys create") as caught:
        Client("http://x", key=key)
    assert "s3" not in str(caught.value)


def test_a_client_does_not_show_its_key() -> None:
    assert repr(Client("http://x", key="s3cret")) == "<Client http://x>"
    assert repr(SyncClient("http://x", key="s3cret")) == "<SyncClient http://x>"


def test_certificates_must_be_there_and_be_of_use(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"missing\.pem"):
        Client("https://x", ca_file=tmp_path / "missing.pem")
    with pytest.raises(Misconfigured, match="for https"):
        Client("http://x", ca_file=tmp_path / "missing.pem")


@pytest.mark.parametrize(("seconds", "connections"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_limits_must_be_more_than_nothing(seconds: float, connections: int) -> None:
    with pytest.raises(Misconfigured, match="more than 0"):
        Client("http://x", timeout_seconds=seconds, connections_max=connections)


def test_a_name_is_one_part_of_a_path() -> None:
    assert part("a/b c?d#e%ü") == "a%2Fb%20c%3Fd%23e%25%C3%BC"
    with pytest.raises(Rejected):
        part("\ud800")
