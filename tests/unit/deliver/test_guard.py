"""Only public addresses may be connected to, unless the configuration says otherwise."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.deliver.http.guard import AddressRule, parse_networks, refusal

PUBLIC = AddressRule()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("169.254.169.254", "link-local"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.1", "reserved"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmark"),
        ("203.0.113.9", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:a9fe:a9fe", "link-local"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("2001::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
        ("not an address", "unknown"),
        ("", "unknown"),
    ],
)
def test_an_address_that_is_not_public_is_refused_by_its_kind(address: str, kind: str) -> None:
    assert refusal(address, PUBLIC) == kind
    assert refusal(address, AddressRule(allow_private=True)) is None


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.32.0.1", "223.255.255.255"),
        *("2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    ],
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert refusal(address, PUBLIC) is None


@given(number=st.integers(0, (1 << 32) - 1))
def test_an_ipv4_address_in_ipv6_clothes_is_judged_as_itself(number: int) -> None:
    plain = refusal(str(IPv4Address(number)), PUBLIC)
    assert refusal(f"::ffff:{IPv4Address(number)}", PUBLIC) == plain
    assert refusal(f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}", PUBLIC) == plain


@given(number=st.integers(0, (1 << 32) - 1))
def test_what_is_allowed_is_global_by_the_registry_too(number: int) -> None:
    ip = IPv4Address(number)
    if refusal(str(ip), PUBLIC) is None:
        assert ip.is_global
        assert not ip.is_multicast


def test_networks_can_be_allowed() -> None:
    rule = AddressRule(networks=parse_networks(["10.1.0.0/16", "fd00::/8"]))
    assert refusal("10.1.2.3", rule) is None
    assert refusal("::ffff:10.1.2.3", rule) is None
    assert refusal("fd12::1", rule) is None
    assert refusal("10.2.0.1", rule) == "private"
    assert refusal("127.0.0.1", rule) == "loopback"
