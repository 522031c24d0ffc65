"""The options of a relay's destinations, each with its own headers, secrets, limits and TLS.

Invariant: secrets in files are read again when a file changes; one that can't be read leaves the secret as it
was. Nothing of a secret is in an error or a log line.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.settings import AuthSettings, DestinationSettings, TlsSettings
from forebay.file_watch import FileWatch
from forebay.model import Misconfigured

__all__ = [
    "DESTINATION_EXAMPLE", "DestinationSecrets", "RelayAuthSettings", "RelayDestinationSettings", "queue_of",
]  # fmt: skip

logger: Final = logging.getLogger("forebay.relay")
_SECRET: Final = {"secret": True}
_SECRET_BYTES_MAX: Final = 64 << 10
_Secret: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, extra=_SECRET)]
_File: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)]


class RelayAuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Authorization header that a destination gets, in place of the client's."""

    bearer: _Secret | None = None
    """A bearer token."""
    bearer_file: _File | None = None
    """A file with a bearer token; it is read again when it changes."""
    user: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The user, for basic authentication."""
    password: _Secret | None = None
    """The password of that user."""
    password_file: _File | None = None
    """A file with the password; it is read again when it changes."""

    def __post_init__(self) -> None:
        """Refuse a secret that is given twice."""
        for name in ("bearer", "password"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                text = f"{name} and {name}_file are both given"
                raise Misconfigured(text, hint="give one of them", key=f"{name}_file")
        self.with_secrets(self.bearer_file and "token", self.password_file and "password")

    @property
    def files(self) -> list[Path]:
        """The files of secrets."""
        return [Path(name) for name in (self.bearer_file, self.password_file) if name is not None]

    def read(self) -> AuthSettings:
        """The same with the secrets of the files; Misconfigured names a bad one."""
        return self.with_secrets(
            None if self.bearer_file is None else _read_secret(Path(self.bearer_file), "bearer_file"),
            None if self.password_file is None else _read_secret(Path(self.password_file), "password_file"),
        )

    def with_secrets(self, bearer: str | None, password: str | None) -> AuthSettings:
        """The same with secrets in place of files."""
        return AuthSettings(bearer=bearer or self.bearer, user=self.user, password=password or self.password)


class RelayDestinationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One destination of a relay; its addresses are the operator's, so private ones are fine."""

    url: _Secret
    """Where requests go; its path is used as that of `relay.to`."""
    headers: Annotated[dict[str, str], msgspec.Meta(extra=_SECRET)] = {}
    """Headers of every request, such as X-Scope-OrgID; they replace those of the client."""
    timeout_seconds: _Seconds | None = None
    """How long a request may take; none for `relay.send_seconds`."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Requests that are under way at a time; none for what the queue's workers say."""
    requests_per_second: Annotated[float, msgspec.Meta(ge=0.001, le=1e6)] | None = None
    """Requests a second; none for no limit."""
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """Requests that may follow each other at once, where `requests_per_second` limits them."""
    retry_auth: bool | None = None
    """Answers 401, 403 and 407 are an outage, and tried again; none for `relay.retry_auth`."""
    auth: RelayAuthSettings = RelayAuthSettings()
    tls: TlsSettings = TlsSettings()

    def __post_init__(self) -> None:
        """Refuse what a destination would refuse, with the name of the setting."""
        self.made(self.auth.with_secrets(self.auth.bearer_file and "token", None))

    def made(
        self,
        auth: AuthSettings,
        *,
        tls: TlsSettings | None = None,
        seconds: float = 30.0,
        retry_auth: bool = True,
        concurrency: int = 1,
    ) -> DestinationSettings:
        """The settings of the destination; the rest holds where this one says nothing."""
        return DestinationSettings(
            url=self.url,
            headers=self.headers,
            auth=auth,
            tls=tls if tls is not None and self.tls == TlsSettings() else self.tls,
            timeout_seconds=seconds if self.timeout_seconds is None else self.timeout_seconds,
            concurrency=concurrency,
            requests_per_second=self.requests_per_second,
            burst=self.burst,
            allow_private=True,
            retry_auth=retry_auth if self.retry_auth is None else self.retry_auth,
        )


def queue_of(queue: SendQueueSettings, concurrency: int | None) -> SendQueueSettings:
    """The settings of a destination's queue with as many senders as it may have requests under way."""
    if concurrency is None:
        return queue
    replace, adaptive = msgspec.structs.replace, queue.adaptive_workers
    return replace(
        queue,
        workers=concurrency,
        max_concurrent_sends=1,
        pipeline_split=replace(queue.pipeline_split, sender_count=concurrency),
        adaptive_workers=replace(
            adaptive, min_workers=min(adaptive.min_workers, concurrency), max_workers=concurrency
        ),
    )


class DestinationSecrets:
    """The secrets in files of one destination."""

    def __init__(
        self, auth: RelayAuthSettings, settings: DestinationSettings, destination: HttpDestination
    ) -> None:
        self._auth = auth
        self._settings = settings
        self._destination = destination
        self._watch = FileWatch(*auth.files)
        self._read()  # again: a change since the first reading would go unseen

    def look(self) -> None:
        """Read the files again if they have changed."""
        if not self._watch.has_changed():
            return
        try:
            self._read()
        except Misconfigured as error:
            logger.error("a destination's secret stays as it was: %s", error)  # noqa: TRY400 - no trace helps
        else:
            logger.info("the secret for %s is read again", self._destination.name)

    def _read(self) -> None:
        settings = msgspec.structs.replace(self._settings, auth=self._auth.read())
        self._destination.use_headers(settings.fixed_headers)


def _read_secret(path: Path, key: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_SECRET_BYTES_MAX + 1)
    except OSError as error:
        text = f"the secret in {path} can't be read: {error.strerror}"
        raise Misconfigured(text, hint="name a file that is there", key=key) from None
    secret = data.strip()
    if (
        not secret
        or len(data) > _SECRET_BYTES_MAX
        or not secret.isascii()
        or not secret.decode().isprintable()
    ):
        text = f"{path} holds no secret, or characters that no header may have"
        raise Misconfigured(text, hint="write the secret and nothing else, in ASCII", key=key)
    return secret.decode()


DESTINATION_EXAMPLE: Final = RelayDestinationSettings(url="https://mimir.example/api/v1/push")
"""Settings with nothing but what they can't do without."""
