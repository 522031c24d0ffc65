"""The settings of a relay: where it listens, where requests go, and how much one client may ask."""

from typing import Annotated, TypeAlias

import msgspec

from forebay.model import Misconfigured
from forebay.relay.destinations import RelayDestinationSettings
from forebay.wire.port import LISTEN, is_loopback, split_listen

__all__ = ["RelayLimits", "RelaySettings", "check_exposure"]

_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)]
_Path: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one client, or all of them, may ask at once."""

    body_bytes_max: _Bytes = 32 << 20
    """The body of a request, as it is sent; more is answered with 413."""
    header_bytes_max: _Bytes = 32 << 10
    """The request line and all headers together; more is answered with 431."""
    headers_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """Headers of a request; more are answered with 431."""
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Open connections; more are refused."""
    request_seconds: _Seconds = 30.0
    """How long a client may take to send a request, or to read its answer."""
    idle_seconds: _Seconds = 330.0
    """How long a connection may stay open between requests; Go's clients let go after 300 seconds."""
    pending_bytes_max: _Bytes = 256 << 20
    """Bodies that are received or written, of all requests together; beyond it the answer is 503."""
    shutdown_seconds: _Seconds = 20.0
    """How long requests that are under way may take once the relay is told to stop."""

    def __post_init__(self) -> None:
        """Refuse limits of which one makes another unreachable."""
        if self.pending_bytes_max < self.body_bytes_max:
            raise Misconfigured(
                f"pending_bytes_max is {self.pending_bytes_max}, less than body_bytes_max",
                hint=f"set it to {self.body_bytes_max} or more, or lower body_bytes_max",
                key="pending_bytes_max",
            )


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a relay listens, and where it sends."""

    listen: Annotated[
        str, msgspec.Meta(pattern=LISTEN, description="host and port, like 127.0.0.1:9009 or [::1]:9009")
    ] = "127.0.0.1:9009"
    """Host and port; port 0 takes any that is free."""
    to: Annotated[str, msgspec.Meta(extra={"secret": True})] = ""
    """The addresses of destinations, separated by spaces; every request goes to each of them."""
    insecure: bool = False
    """Listen beyond loopback without tokens: whoever reaches the port can send, and can fill the disk."""
    tls_cert: _Path | None = None
    """The certificate of the relay's own port and its chain, PEM; none for plain HTTP."""
    tls_key: _Path | None = None
    """Its private key, PEM, where the certificate's file doesn't hold it."""
    token_file: _Path | None = None
    """Tokens, one a line, of which clients show one: `Authorization: Bearer`, which then isn't sent on."""
    send_seconds: _Seconds = 30.0
    """How long a destination may take to answer a request."""
    retry_auth: bool = True
    """Answers 401, 403 and 407 are an outage, and tried again; otherwise they make dead letters."""
    ca_file: _Path | None = None
    """Certificates that are trusted for https destinations, in place of the system's."""
    cert_file: _Path | None = None
    """The certificate that is shown to https destinations."""
    key_file: _Path | None = None
    """Its key, where the certificate's file doesn't hold it."""
    metrics_prefix: Annotated[
        str,
        msgspec.Meta(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", description="the start of a metric's name"),
    ] = "forebay_relay"
    """The prefix of metrics; `metrics_governor` gives the names of metrics-governor."""
    destinations: dict[str, RelayDestinationSettings] = {}
    """Destinations with options of their own, by name; they get every request too."""
    limits: RelayLimits = RelayLimits()

    def __post_init__(self) -> None:
        """Refuse a key without a certificate."""
        if self.tls_key is not None and self.tls_cert is None:
            raise Misconfigured("tls_key is given without tls_cert", hint="give both", key="tls_key")


def check_exposure(settings: RelaySettings) -> str | None:
    """Refuse to listen beyond this machine without tokens unless that is said; a warning, if one is due."""
    host, _ = split_listen(settings.listen)
    if is_loopback(host):
        return None
    if settings.token_file is None and not settings.insecure:
        raise Misconfigured(
            f"relay.listen is {settings.listen}, open to other machines, and anyone could send",
            hint="give --token-file, listen on 127.0.0.1, or say --insecure where strangers are kept out",
        )
    if settings.token_file is None:
        return f"whoever reaches {settings.listen} can send, and can fill the disk: there is no --token-file"
    if settings.tls_cert is None:
        return f"clients of {settings.listen} send their tokens in the clear: there is no --tls-cert"
    return None
