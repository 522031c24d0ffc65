"""What the server can be told, and when it refuses to listen.

Bounds are part of the types (`msgspec.Meta`), so that whoever reads settings can check them one by one
and report every bad one; what concerns several at once is checked when the value is made.
"""

import re
from typing import Annotated, Final, TypeAlias

import msgspec

from forebay.model import Misconfigured
from forebay.wire.port import LISTEN, is_loopback, split_listen

__all__ = ["KeySettings", "ServerLimits", "ServerSettings", "check_exposure"]

_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)]
_Wait: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)]
_Path: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]

_HOST: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::[0-9]{1,5})?")


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client, or all of them, may ask of the server at once."""

    body_bytes_max: _Bytes = 32 << 20
    """The body of a request, also once it is unpacked."""
    header_bytes_max: _Bytes = 32 << 10
    """The request line and all headers of a request together."""
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000
    """Open connections; more are refused."""
    request_seconds: _Wait = 30.0
    """How long a client may take to send a request."""
    idle_seconds: _Wait = 75.0
    """How long a connection may stay open between two requests."""
    wait_seconds_max: _Wait = 60.0
    """The longest wait that a take may ask for."""
    take_count_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10_000
    """Messages in one take."""
    shutdown_seconds: _Wait = 20.0
    """How long requests may go on after the server was told to stop."""
    pending_bytes_max: _Bytes = 256 << 20
    """Bodies that are being worked on, of all requests together; beyond it the answer is 503."""
    unread_bytes_max: _Bytes = 512 << 20
    """Answers that clients have yet to read, all together; beyond it takes and large reads get 503."""
    key_unread_bytes_max: _Bytes | None = None
    """Of these, the answers to one key; none for half of `unread_bytes_max`."""

    @property
    def unread_bytes_of_a_key_max(self) -> int:
        """What the answers to one key may hold."""
        given = self.key_unread_bytes_max
        return self.unread_bytes_max // 2 if given is None else given

    def __post_init__(self) -> None:
        """Refuse limits of which one makes another unreachable."""
        if self.pending_bytes_max < self.body_bytes_max:
            raise Misconfigured(
                f"pending_bytes_max is {self.pending_bytes_max}, less than body_bytes_max",
                hint=f"set it to {self.body_bytes_max} or more, or lower body_bytes_max",
                key="pending_bytes_max",
            )


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and to whom."""

    listen: Annotated[
        str, msgspec.Meta(pattern=LISTEN, description="host and port, like 127.0.0.1:6632 or [::1]:6632")
    ] = "127.0.0.1:6632"
    """Host and port; port 0 takes any that is free. Beyond loopback, keys are needed."""
    tls_certificate: _Path | None = None
    """A file with the certificate and its chain, PEM; none serves plain HTTP."""
    tls_key: _Path | None = None
    """The file with the certificate's private key, PEM."""
    insecure: bool = False
    """Listen beyond loopback although there are no API keys."""
    hosts: tuple[str, ...] = ()
    """Names, with or without a port, by which browsers reach the server, as behind a proxy. Loopback names,
    the host of `listen`, and addresses are known anyhow."""
    create_queues: bool = True
    """A push to a queue that isn't there creates it; otherwise it is answered with 404."""
    limits: ServerLimits = ServerLimits()
    """What clients may ask at once."""

    def __post_init__(self) -> None:
        """Refuse half of a certificate, and hosts that no browser would name."""
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise Misconfigured(
                    f"{host!r} is not a name, with or without a port",
                    hint="write it as queues.example.com or localhost:3000",
                    key="hosts",
                )
        if (self.tls_certificate is None) != (self.tls_key is None):
            missing = "tls_certificate" if self.tls_certificate is None else "tls_key"
            other = "tls_key" if self.tls_certificate is None else "tls_certificate"
            raise Misconfigured(
                f"{other} is set, but {missing} is missing", hint="set both, or none", key=missing
            )


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where API keys are kept, and how often a key may be used unless it says otherwise itself."""

    file: _Path | None = None
    """The file of API keys; none for `keys.json` in the data folder. When set, it must exist."""
    rate_per_second: Annotated[float, msgspec.Meta(ge=0.001, le=1e9)] | None = None
    """Requests per second of a key, on average; none sets no limit."""
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    """Requests of a key at once; none for those of one second."""


def check_exposure(settings: ServerSettings, *, guarded: bool) -> None:
    """Refuse to listen beyond this machine when anyone could do anything.

    `guarded` says that there are keys, or that JWTs are taken.
    """
    host, _ = split_listen(settings.listen)
    if guarded or settings.insecure or is_loopback(host):
        return
    raise Misconfigured(
        f"server.listen is {settings.listen}, open to other machines, and there are no API keys",
        hint="make one with `forebay keys create`, set jwt, listen on 127.0.0.1, or say --insecure",
    )
