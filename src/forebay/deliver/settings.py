"""The settings of one destination: where it is, what it gets, and how much of it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from forebay.deliver.admission import RateRule
from forebay.deliver.http.address import Address, parse_address
from forebay.deliver.http.guard import AddressRule, parse_networks
from forebay.deliver.signature import SIGNATURE_HEADERS, parse_secret
from forebay.deliver.values import Headers
from forebay.model import Misconfigured

__all__ = ["EXAMPLE", "AuthSettings", "DestinationSettings", "QueueDeliverySettings", "TlsSettings"]

_SECRET: Final = {"secret": True}
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.001, le=86_400.0)]
_Secret: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, extra=_SECRET)]
_File: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_RESERVED: Final = frozenset(("connection", "content-length", "host", "transfer-encoding"))
_SECRETS_MAX: Final = 10


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an https destination is verified, and how it knows us."""

    ca_file: _File | None = None
    """Certificates that are trusted in place of the system's."""
    cert_file: _File | None = None
    """The certificate that we show (mTLS)."""
    key_file: _File | None = None
    """Its key, where the certificate's file doesn't hold it."""

    def __post_init__(self) -> None:
        """Refuse a key without a certificate."""
        if self.key_file is not None and self.cert_file is None:
            raise Misconfigured("key_file is given without cert_file", hint="give both", key="key_file")


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Authorization header."""

    bearer: _Secret | None = None
    """A bearer token."""
    user: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The user, for basic authentication."""
    password: _Secret | None = None
    """The password of that user."""

    def __post_init__(self) -> None:
        """Refuse two ways at once, and what would end a header."""
        if self.bearer is not None and self.user is not None:
            raise Misconfigured("bearer and user are both given", hint="give one of them", key="bearer")
        if self.password is not None and self.user is None:
            raise Misconfigured("password is given without user", hint="give both", key="password")
        if self.bearer is not None and not _VALUE.fullmatch(self.bearer):
            raise Misconfigured("bearer holds characters that no header may have", key="bearer")
        if self.user is not None and ":" in self.user:
            raise Misconfigured("user holds a colon, which would end it", key="user")


class DestinationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One destination over HTTP."""

    url: _Secret
    """Where requests go: https://host/path; a user and password in it are sent as basic authentication."""
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    """The method of requests that are made of messages."""
    body: Literal["message", "json", "ndjson"] = "message"
    """One message a request as it is; or several, as a JSON array or as lines of JSON."""
    batch_messages_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """Messages in one request, where `body` is json or ndjson."""
    batch_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] = 1 << 20
    """Bytes of messages in one request; a larger message is alone in one."""
    content_type: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The Content-Type, where a message has none of its own; none for the one that fits `body`."""
    headers: Annotated[dict[str, str], msgspec.Meta(extra=_SECRET)] = {}
    """Headers of every request; they replace those of the same name."""
    signing_secrets: Annotated[tuple[str, ...], msgspec.Meta(max_length=_SECRETS_MAX, extra=_SECRET)] = ()
    """Sign requests by Standard Webhooks, with each of these `whsec_` secrets; none for no signature."""
    timeout_seconds: _Seconds = 30.0
    """How long a request may take, from waiting for a connection to the end of its answer."""
    connect_seconds: _Seconds = 10.0
    """How long connecting may take, of that."""
    idle_seconds: _Seconds = 30.0
    """How long a connection is kept that isn't used."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16
    """Requests that are under way at a time; each has a connection."""
    requests_per_second: Annotated[float, msgspec.Meta(ge=0.001, le=1e6)] | None = None
    """Requests a second; none for no limit."""
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """Requests that may follow each other at once, where `requests_per_second` limits them."""
    answer_head_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=1 << 24)] = 64 << 10
    """Bytes of an answer's status and headers; more is a failure."""
    answer_body_bytes_max: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 64 << 10
    """Bytes of an answer's body that are read; the rest isn't waited for, and costs the connection."""
    allow_private: bool = False
    """Connect to private, loopback and other addresses that aren't public."""
    allowed_networks: tuple[str, ...] = ()
    """Networks such as 10.1.0.0/16 that may be connected to although they aren't public."""
    retry_auth: bool = True
    """Answers 401, 403 and 407 are an outage, and tried again; otherwise they make dead letters."""
    disable_after_seconds: Annotated[float, msgspec.Meta(ge=1.0, le=31_536_000.0)] | None = None
    """Stop by itself after failing for so long, until it is resumed; none for never."""
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()

    def __post_init__(self) -> None:
        """Refuse what can't work, with the name of the setting."""
        _at("url", lambda: self.address)
        _at("signing_secrets", lambda: self.signing_keys)
        for name, value in self.headers.items():
            _check_header(name, value)
        if self.content_type is not None:
            _check_header("content-type", self.content_type)
        try:
            parse_networks(self.allowed_networks)
        except ValueError as error:
            raise Misconfigured(str(error), hint="write it as 10.1.0.0/16", key="allowed_networks") from None
        if self.address.basic is not None and (self.auth.bearer or self.auth.user):
            raise Misconfigured("url and auth both say who we are", hint="give one of them", key="auth")

    @property
    def address(self) -> Address:
        """The url, taken apart."""
        return parse_address(self.url)

    @property
    def signing_keys(self) -> tuple[bytes, ...]:
        """The secrets as keys."""
        return tuple(parse_secret(secret) for secret in self.signing_secrets)

    @property
    def fixed_headers(self) -> Headers:
        """Headers of every request, Authorization included."""
        given = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in self.headers.items())
        authorization = self._authorization()
        return given if authorization is None else (*given, (b"Authorization", authorization))

    def _authorization(self) -> bytes | None:
        if self.auth.bearer is not None:
            return b"Bearer " + self.auth.bearer.encode("ascii")
        if self.auth.user is not None:
            return b"Basic " + b64encode(f"{self.auth.user}:{self.auth.password or ''}".encode())
        return self.address.basic

    @property
    def address_rule(self) -> AddressRule:
        """Which addresses may be connected to."""
        return AddressRule(allow_private=self.allow_private, networks=parse_networks(self.allowed_networks))

    @property
    def rate_rule(self) -> RateRule | None:
        """The limit of requests a second."""
        if self.requests_per_second is None:
            return None
        return RateRule(per_second=self.requests_per_second, burst=self.burst)


class QueueDeliverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, or one group of it, and the destination that its messages go to."""

    queue: Annotated[str, msgspec.Meta(min_length=1)]
    """The queue."""
    group: Annotated[str, msgspec.Meta(min_length=1)] = "workers"
    """The consumer group; each destination of a queue needs its own."""
    visibility_seconds: Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0)] = 60.0
    """How long the messages of a process that died stay with it; while it lives, leases are extended."""
    retries_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    """How often a message is tried again before it is a dead letter; none for ever."""
    retry_seconds: _Seconds = 5.0
    """The longest pause after the first failure; it doubles with each, and is drawn evenly below that."""
    retry_seconds_max: _Seconds = 300.0
    """The longest pause, unless the destination asks for more."""
    breaker_threshold: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5
    """Failures in a row that open the breaker."""
    breaker_seconds: _Seconds = 30.0
    """How long an open breaker leaves the destination alone before one request tries again."""
    ramp_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=3_600.0)] = 10.0
    """How long a destination that was down takes to get its full load again."""
    destination: DestinationSettings
    """Where its messages go."""


def _at(key: str, check: Callable[[], object]) -> None:
    try:
        check()
    except Misconfigured as error:
        raise Misconfigured(error.message, hint=error.hint, key=key) from None


def _check_header(name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise Misconfigured(f"{name[:64]!r} is not a header that can be set", key="headers")
    if name.lower().encode() in SIGNATURE_HEADERS:
        raise Misconfigured(f"{name} is made from signing_secrets", hint="set those", key="headers")
    if not _VALUE.fullmatch(value):
        raise Misconfigured(f"the value of {name} holds characters that no header may have", key="headers")


EXAMPLE: Final = QueueDeliverySettings(
    queue="orders", destination=DestinationSettings(url="https://hooks.example/orders")
)
"""Settings with nothing but what they can't do without."""
