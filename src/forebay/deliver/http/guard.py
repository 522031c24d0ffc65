"""Which addresses a destination may have. Pure functions on resolved addresses.

A destination that users may name must not lead into the network of the server: to its own ports, to a
neighbour, to a cloud's metadata service. So the address that is connected to is checked, after the name was
resolved and for every connection: a name that resolves otherwise the second time gains nothing.

Refused, unless allowed: everything that isn't a public unicast address. An IPv6 address that holds an IPv4
address (mapped, or NAT64) is judged by the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

import msgspec

__all__ = ["AddressRule", "parse_networks", "refusal"]

_Network: TypeAlias = IPv4Network | IPv6Network

_REFUSED: Final = tuple(
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmark"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
)
_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_BITS: Final = 0xFFFFFFFF


class AddressRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which addresses may be connected to."""

    allow_private: bool = False
    """Every address; otherwise only public ones, and those in `networks`."""
    networks: tuple[_Network, ...] = ()


def parse_networks(texts: Sequence[str]) -> tuple[_Network, ...]:
    """Networks such as 10.1.0.0/16; ValueError names what isn't one."""
    return tuple(ip_network(text) for text in texts)


def refusal(address: str, rule: AddressRule) -> str | None:
    """The kind of an address that may not be connected to, or None when it may."""
    if rule.allow_private:
        return None
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    ip = _embedded(ip) or ip
    if any(ip in network for network in rule.networks):
        return None
    for network, what in _REFUSED:
        if ip in network:
            return what
    return None if isinstance(ip, IPv4Address) or ip in _PUBLIC_IPV6 else "reserved"


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 address end up at."""
    if isinstance(ip, IPv4Address):
        return None
    if ip in _NAT64:
        return IPv4Address(int(ip) & _IPV4_BITS)
    return ip.ipv4_mapped
