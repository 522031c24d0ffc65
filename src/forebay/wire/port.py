"""The port that a server listens on: how it is written, whether others can reach it, and its socket."""

import resource
import socket
from ipaddress import ip_address
from typing import Final

from forebay.model import Misconfigured

__all__ = ["BACKLOG", "LISTEN", "is_loopback", "listen", "raise_files_limit", "split_listen"]

_PORT: Final = (
    "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{1,3}|[0-9])"
)
LISTEN: Final = rf"^(?:\[[0-9a-fA-F:.]+\]|[^:/@\[\]\s]+):{_PORT}$"
"""Host and port, as `127.0.0.1:6632` or `[::1]:6632`."""
BACKLOG: Final = 4_096
"""Connections that may wait to be accepted."""


def split_listen(listen: str) -> tuple[str, int]:
    """Host and port; the host of IPv6 without its brackets."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # Any other name may resolve to anything, tomorrow to something else.
        return host.lower() == "localhost"


def listen(address: str) -> socket.socket:
    """An open socket at `host:port`; port 0 takes a free one."""
    host, port = split_listen(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP, or asyncio leaves small answers to wait for the acknowledgement of their heads.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        # From here on whoever connects waits to be accepted, and isn't refused.
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        text = f"can't listen on {address}: {error.strerror}"
        raise Misconfigured(text, hint="is another server running? choose another with --listen") from None
    return sock


def raise_files_limit(connections: int) -> None:
    """Allow as many open files as connections need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 1_000
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
