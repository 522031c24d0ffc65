"""The queues of running relays: a line for each destination, for `forebay relay status` and `forebay top`."""

import argparse
import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

import msgspec

from forebay.app.commands.output import age_text, print_json, print_table
from forebay.model import Unavailable
from forebay.relay.status import DestinationStatus

__all__ = ["RelayRow", "RelayWatch", "declare_status", "show_status"]

_URL: Final = "http://127.0.0.1:9009"
_PATIENCE_SECONDS: Final = 2.0
_STATUS: Final = msgspec.json.Decoder(list[DestinationStatus])


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

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._before: dict[tuple[str, str], tuple[float, DestinationStatus]] = {}
        self.rows: list[RelayRow] = []

    async def look(self) -> None:
        """Ask all relays; Unavailable where one doesn't answer."""
        found: list[RelayRow] = []
        for url in self._urls:
            found += [self._row(url, status) for status in await _ask(url)]
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


async def _ask(url: str) -> list[DestinationStatus]:
    import aiohttp  # noqa: PLC0415 - it takes as long to load as the rest

    try:
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{url}/status") as answer:
            answer.raise_for_status()
            return _STATUS.decode(await answer.read())
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, ValueError) as error:
        text = f"no relay answers at {url}: {str(error) or type(error).__name__}"
        raise Unavailable(text, hint="name its address, like http://127.0.0.1:9009") from None


def declare_status(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay status`."""
    parser.add_argument("--relay", metavar="URL", default=_URL, help="the relay (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def show_status(arguments: argparse.Namespace) -> int:
    """Print the queues of a running relay."""
    found = asyncio.run(_ask(arguments.relay))
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
