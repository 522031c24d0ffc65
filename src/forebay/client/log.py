"""HttpLog: the log of a server, verb by verb, over HTTP.

Invariants: what returns has happened, as with a log in this process; errors are the same ones. A verb is
sent again only where twice is the same as once: a commit has an id for that, minted here where the caller has
none. Where nobody knows whether it was done, the error says so. Time, limits, retention are the server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from forebay.client.calling import Ask, Caller, decoded
from forebay.log.seam import Log
from forebay.log.values import Append, Queue, Receipt, Record, Settlement
from forebay.model import Unavailable, mint
from forebay.wire.log import LONG_SECONDS, VERBS, Verb

STAGED_BYTES_MAX: Final = 8 << 20
"""How much one request stages; one block always fits, as far as the server is concerned."""


class HttpLog:
    """The log of the server at an address (`http://` or `https://`). Opened with `async with`; share it.

    `key` is an API key with the scope `admin`, for all queues. `ca_file` has the certificates that the
    server's own is checked against. A call gives up after `timeout_seconds`, however often it was tried;
    those that may take long on the server have minutes more.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = 30.0,
        connections_max: int = 16,
    ) -> None:
        self._caller = Caller(
            url,
            key=key,
            ca_file=ca_file,
            timeout_seconds=timeout_seconds,
            connections_max=connections_max,
        )

    def __repr__(self) -> str:
        """Say where it leads."""
        return f"<{type(self).__name__} {self._caller.server}>"

    async def __aenter__(self) -> Self:
        self._caller.open()
        try:
            await self._ask(VERBS["queues"], {"limit": 1})  # whether it is there, and lets us in
        except BaseException:
            await self._caller.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._caller.close()

    def __getattr__(self, name: str) -> Any:
        """Every verb that needs no more than to be sent."""
        verb = VERBS.get(name)
        if verb is None:
            raise AttributeError(f"a log has no verb {name!r}")

        async def asked(*arguments: Any, **options: Any) -> Any:
            return await self._ask(verb, verb.named(arguments, options))

        asked.__name__, asked.__doc__ = name, getattr(Log, name).__doc__
        self.__dict__[name] = asked
        return asked

    async def _ask(self, verb: Verb, named: dict[str, Any]) -> Any:
        if not self._caller.is_open:
            raise Unavailable("the log is closed", hint="open it again")
        ask = Ask(
            "POST",
            verb.path,
            verb.sent(named),
            repeats=verb.may_repeat(named),
            wait_seconds=LONG_SECONDS if verb.is_long else 0.0,
        )
        reply = await self._caller.ask(ask)
        if reply.error is not None:
            raise reply.error
        return decoded(reply.body, verb.answer)

    async def commit(
        self,
        appends: Sequence[Append] = (),
        settlements: Sequence[Settlement] = (),
        *,
        id: bytes | None = None,
        atomic: bool = False,
        records: Sequence[Record] = (),
    ) -> Receipt:
        """Write, under one id however often it is sent."""
        if id is None and (settlements or records):
            id = mint()
        named = {
            "appends": appends,
            "settlements": settlements,
            "id": id,
            "atomic": atomic,
            "records": records,
        }
        return cast("Receipt", await self._ask(VERBS["commit"], named))

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        """Keep blocks under a name, in as many requests as they need."""
        for some in _in_parts(appends):
            await self._ask(VERBS["stage"], {"stage": stage, "appends": some})

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        """Messages by partition and transaction id; what can't be written as UTF-8 is nowhere."""
        sent = [key for key in keys if all(_is_text(part) for part in key)]
        answer = await self._ask(VERBS["locate"], {"queue": queue, "keys": sent})
        found = dict(zip(sent, cast("list[int | None]", answer), strict=True))
        return [found.get(key) for key in keys]

    def hang_up(self) -> None:
        """Connections that may be dead are given up by themselves, each by its own deadline."""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_parts(appends: Sequence[Append]) -> Iterator[Sequence[Append]]:
    """The blocks, as many at a time as one request carries; once nothing, where there are none."""
    some: list[Append] = []
    size = 0
    for append in appends:
        if some and size + len(append.body) > STAGED_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(append)
        size += len(append.body)
    if some or not appends:
        yield some


def http_log(url: str, *, key: str | None = None, ca_file: str | Path | None = None) -> Log:
    """The same, as the log that it is: all other verbs come from the table of verbs."""
    return cast("Log", HttpLog(url, key=key, ca_file=ca_file))
