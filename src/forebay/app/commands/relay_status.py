"""The queues of running relays: a line for each destination, for `forebay relay status` and `forebay top`."""

import argparse
import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener
from urllib.request import Request as WebRequest

import msgspec

from forebay.app.commands.output import age_text, print_json, print_table
from forebay.deliver.http.tls import client_context
from forebay.deliver.settings import TlsSettings
from forebay.model import Unavailable
from forebay.relay.status import DestinationStatus
from forebay.relay.tokens import read_tokens

__all__ = [
    "RelayAccess", "RelayRow", "RelayWatch", "access_of", "declare_access", "declare_status", "show_status",
]  # fmt: skip

_URL: Final = "http://127.0.0.1:9009"
_PATIENCE_SECONDS: Final = 2.0
_PAGE_BYTES_MAX: Final = 16 << 20
_STATUS: Final = msgspec.json.Decoder(list[DestinationStatus])


class RelayAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a relay knows us, and we know it."""

    token_file: str | None = None
    ca_file: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        if self.token_file is None:
            return {}
        return {"Authorization": f"Bearer {read_tokens(Path(self.token_file))[0].decode()}"}


def declare_access(parser: argparse.ArgumentParser, prefix: str = "--") -> None:
    """The arguments that say it."""
    parser.add_argument(
        f"{prefix}token-file",
        dest="relay_token_file",
        metavar="FILE",
        help="the relay's tokens, the first is shown",
    )
    parser.add_argument(
        f"{prefix}ca-file",
        dest="relay_ca_file",
        metavar="FILE",
        help="trust these, not the system's certificates",
    )


def access_of(arguments: argparse.Namespace) -> RelayAccess:
    """What was said of it."""
    return RelayAccess(token_file=arguments.relay_token_file, ca_file=arguments.relay_ca_file)


class RelayRow(msgspec.Struct, frozen=True, kw_only=True):
    """One destination of a relay."""

    relay: str
    status: DestinationStatus
    in_per_second: float = 0.0
    """Since the last look."""
    out_per_second: float = 0.0

    def line(self) -> str:
        """All of it, for people."""
        status = self.status
        return (
            f"relay {status.destination}  in {self.in_per_second:,.0f}/s  out {self.out_per_second:,.0f}/s  "
            f"queued {status.size:,}  oldest {age_text(status.oldest_seconds)}  breaker {status.breaker}  "
            f"dropped {status.dropped:,}  dead {status.dead:,}"
        )


class RelayWatch:
    """Looks at relays again and again."""

    def __init__(self, urls: Sequence[str], access: RelayAccess | None = None) -> None:
        self._urls = urls
        self._access = access or RelayAccess()
        self._before: dict[tuple[str, str], tuple[float, DestinationStatus]] = {}
        self.rows: list[RelayRow] = []

    async def look(self) -> None:
        """Ask all relays; Unavailable where one doesn't answer."""
        found: list[RelayRow] = []
        for url in self._urls:
            found += [self._row(url, status) for status in await _ask(url, self._access)]
        self.rows = found

    def _row(self, url: str, status: DestinationStatus) -> RelayRow:
        key, now = (url, status.destination), monotonic()
        then, before = self._before.get(key, (now, status))
        self._before[key] = (now, status)
        seconds = max(now - then, 1e-9)
        return RelayRow(
            relay=url,
            status=status,
            in_per_second=max(0, status.pushed - before.pushed) / seconds,
            out_per_second=max(0, status.delivered - before.delivered) / seconds,
        )


async def _ask(url: str, access: RelayAccess) -> list[DestinationStatus]:
    try:
        return _STATUS.decode(await asyncio.to_thread(_fetch, f"{url.rstrip('/')}/status", access))
    except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as error:
        hint = "name its address, like http://127.0.0.1:9009"
        if isinstance(error, HTTPError):
            error.close()
            if error.code == HTTPStatus.UNAUTHORIZED:
                hint = "name its tokens with --token-file"
        text = f"no relay answers at {url}: {_said(error)}"
        raise Unavailable(text, hint=hint) from None


def _said(error: Exception) -> str:
    """The words of an error, without those of the library around them."""
    inner = error.reason if isinstance(error, URLError) and not isinstance(error, HTTPError) else error
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner) or type(error).__name__


def _fetch(url: str, access: RelayAccess) -> bytes:
    """Get a page, in a thread: its connection has ended when this returns, also one with TLS."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("not a web address")
    tls = None if access.ca_file is None else client_context(TlsSettings(ca_file=access.ca_file))
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=tls))
    with opener.open(WebRequest(url, headers=access.headers()), timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - the address is looked at above
        data: bytes = answer.read(_PAGE_BYTES_MAX)
    return data


def declare_status(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay status`."""
    parser.add_argument("--relay", metavar="URL", default=_URL, help="the relay (default: %(default)s)")
    declare_access(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def show_status(arguments: argparse.Namespace) -> int:
    """Print the queues of a running relay."""
    found = asyncio.run(_ask(arguments.relay, access_of(arguments)))
    if arguments.json:
        print_json(found)
        return 0
    columns = ("destination", "queued", "bytes", "oldest", "breaker", "delivered", "dropped", "dead")
    rows = [
        [one.destination, one.size, one.bytes_held, age_text(one.oldest_seconds), one.breaker, one.delivered,
         one.dropped, one.dead]
        for one in found
    ]  # fmt: skip
    print_table(columns, rows)
    return 0
