"""What the server can be told."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on requests; sizes in bytes, times in seconds."""

    body_bytes_max: int = 32 << 20
    """A body, after decompression."""
    header_bytes_max: int = 32 << 10
    """The request line and all headers together."""
    connections_max: int = 20_000
    """Connections at a time; more are answered 503."""
    request_seconds: float = 30.0
    """Within which a request must arrive, and be worked on."""
    idle_seconds: float = 75.0
    """How long a connection may wait for its next request."""
    wait_seconds_max: float = 60.0
    """How long a take may wait."""
    take_count_max: int = 10_000
    """Tasks that one take may ask for."""
    shutdown_seconds: float = 20.0
    """Within which the server finishes what it has begun."""
    pending_bytes_max: int = 256 << 20
    """Bodies that are being worked on; beyond it pushes are answered 503."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server listens, and how."""

    listen: str = "127.0.0.1:6632"
    tls_certificate: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    create_queues: bool = True
    limits: ServerLimits = ServerLimits()
