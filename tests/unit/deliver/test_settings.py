"""Settings of a destination that can't work are refused, with the name of the setting, without secrets."""

import msgspec
import pytest

from forebay.deliver.http.address import parse_address
from forebay.deliver.settings import AuthSettings, DestinationSettings, TlsSettings
from forebay.model import Misconfigured

URL = "https://hooks.example/path"


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "authority"),
    [
        ("http://a", "a", 80, b"/", b"a"),
        ("https://a.example", "a.example", 443, b"/", b"a.example"),
        ("https://a:443/x", "a", 443, b"/x", b"a"),
        ("http://a:8080/x/y?z=1&z=2", "a", 8080, b"/x/y?z=1&z=2", b"a:8080"),
        ("http://a?x", "a", 80, b"/?x", b"a"),
        ("http://[::1]:9/x", "::1", 9, b"/x", b"[::1]:9"),
        ("http://[2606:4700::1111]/", "2606:4700::1111", 80, b"/", b"[2606:4700::1111]"),
        ("https://u:p@a/x", "a", 443, b"/x", b"a"),
    ],
)
def test_an_address_is_taken_apart(url: str, host: str, port: int, target: bytes, authority: bytes) -> None:
    found = parse_address(url)
    assert (found.host, found.port, found.target, found.authority) == (host, port, target, authority)


def test_the_name_of_a_destination_has_no_secrets() -> None:
    assert parse_address("https://u:p@a:9/x?token=1").name == "https://a:9/x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a",
        "ftp://a/",
        "http://",
        "http:///x",
        "http://a:0/",
        "http://a:99999/",
        "http://a:b/",
        "http://a b/",
        "http://a/b c",
        "http://a/é",
        "http://a/\r\nEvil: 1",
        "http://a\r\nb/",
        "http://a/#x",
        "http://[::1/",
        "http://é/",
        "http://user:hunter2@a b/",
        "javascript:alert(1)",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        DestinationSettings(url=url)
    assert caught.value.key == "url"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"signing_secrets": ["whsec_x"]}, "signing_secrets"),
        ({"headers": {"Host": "x"}}, "headers"),
        ({"headers": {"a b": "x"}}, "headers"),
        ({"headers": {"a": "x\r\ny"}}, "headers"),
        ({"headers": {"Webhook-Id": "x"}}, "headers"),
        ({"content_type": "a\nb"}, "headers"),
        ({"allowed_networks": ["10.0.0.1/8"]}, "allowed_networks"),
        ({"url": "https://u:p@a/", "auth": {"bearer": "x"}}, "auth"),
        ({"auth": {"bearer": "x", "user": "y"}}, "bearer"),
        ({"auth": {"bearer": "x\n"}}, "bearer"),
        ({"auth": {"password": "x"}}, "password"),
        ({"auth": {"user": "a:b"}}, "user"),
        ({"tls": {"key_file": "x"}}, "key_file"),
    ],
)
def test_settings_that_contradict_or_break_out_are_refused(settings: dict[str, object], key: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        msgspec.convert({"url": URL} | settings, DestinationSettings)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"timeout_seconds": 0},
        {"requests_per_second": 0},
        {"body": "xml"},
        {"method": "GET"},
        {"batch_messages_max": 0},
    ],
)
def test_numbers_have_bounds(settings: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"url": URL} | settings, DestinationSettings)


def test_credentials_become_one_header() -> None:
    basic = DestinationSettings(url=URL, auth=AuthSettings(user="me", password="pä:ss"), tls=TlsSettings())
    assert basic.fixed_headers == ((b"Authorization", b"Basic bWU6cMOkOnNz"),)
    fixed = DestinationSettings(url=URL, headers={"X-A": "b"}, auth=AuthSettings(bearer="t"))
    assert fixed.fixed_headers == ((b"X-A", b"b"), (b"Authorization", b"Bearer t"))


def test_a_rate_is_a_rule_with_its_burst() -> None:
    assert DestinationSettings(url=URL).rate_rule is None
    rule = DestinationSettings(url=URL, requests_per_second=5.0, burst=10).rate_rule
    assert rule is not None
    assert (rule.per_second, rule.burst) == (5.0, 10)
