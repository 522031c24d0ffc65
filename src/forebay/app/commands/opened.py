"""The store that a command works on: its address, its key, and what is said when nobody answers there."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from forebay.app.opening import DEFAULT_SERVER, DEFAULT_STORE, is_server, open_log, open_store, split_warm
from forebay.log.seam import Log
from forebay.model import Misconfigured, Unavailable
from forebay.store.seam import Store

__all__ = [
    "answers",
    "declare_embedded",
    "declare_store",
    "declare_text",
    "is_served",
    "nobody_there",
    "on_log",
    "on_store",
    "shown_url",
    "store_url",
]

Run = Callable[[argparse.Namespace], int]

_PROBE_SECONDS: Final = 2.0


def declare_store(parser: argparse.ArgumentParser) -> None:
    """The arguments of every command that works on a store."""
    _declare(parser, DEFAULT_SERVER)


def declare_embedded(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that needs no server: its default is a file."""
    _declare(parser, DEFAULT_STORE)


def declare_text(parser: argparse.ArgumentParser) -> None:
    """The argument of a command that prints data."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _declare(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--store", metavar="URL", help=f"the server or the log (default: $FOREBAY_STORE, else {default})"
    )
    parser.add_argument("--key", metavar="KEY", help="the server's API key (default: $FOREBAY_KEY)")
    parser.set_defaults(default_store=default)
    declare_text(parser)


def store_url(arguments: argparse.Namespace) -> str:
    """The address that was given, or the environment's, or the command's default."""
    given: str | None = arguments.store
    return given or os.environ.get("FOREBAY_STORE") or str(arguments.default_store)


def shown_url(url: str) -> str:
    """An address as it may be shown: without user, password and parameters."""
    scheme, sign, rest = url.partition("?")[0].partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{sign}{place.rpartition('@')[2]}{slash}{path}"


def is_served(arguments: argparse.Namespace) -> bool:
    """Whether the store is a server's, which goes on when this command ends."""
    return is_server(store_url(arguments))


def on_store(work: Callable[[Store, argparse.Namespace], Awaitable[int]]) -> Run:
    """A command that opens the store, works on it, and closes it. With `--spool` a server may be away."""

    async def opened(arguments: argparse.Namespace) -> int:
        url, spool = store_url(arguments), getattr(arguments, "spool", None)
        needs_server = is_server(url) and spool is None
        if needs_server and not await answers(url):  # a client would try for a while before it says so
            raise nobody_there(url)
        key = arguments.key or os.environ.get("FOREBAY_KEY") or None
        try:
            async with open_store(url, key=key, spool=spool) as store:
                return await work(store, arguments)
        except Unavailable as error:
            if needs_server and not await answers(url):
                raise nobody_there(url) from error
            raise

    return lambda arguments: asyncio.run(opened(arguments))


def on_log(work: Callable[[Log, argparse.Namespace], Awaitable[int]]) -> Run:
    """A command that works on a log itself, and not through a server."""

    async def opened(arguments: argparse.Namespace) -> int:
        url = store_url(arguments)
        if is_server(url):
            text = f"{shown_url(url)} is a server, which does this by itself"
            raise Misconfigured(text, hint="name a log: --store sqlite:///file.db or postgresql://...")
        async with open_log(split_warm(url)[0]) as log:
            return await work(log, arguments)

    return lambda arguments: asyncio.run(opened(arguments))


async def answers(url: str) -> bool:
    """Whether anybody listens at the address of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True


def nobody_there(url: str) -> Unavailable:
    """What is said when nobody listens at the address of a server."""
    hint = "start one with `forebay serve`, name another with --store, or work on a file: --store sqlite:///file.db"
    return Unavailable(f"there is no Forebay server at {shown_url(url)}", hint=hint)
