"""`forebay deliver`: the messages of one queue to one destination, until a signal."""

import argparse
import asyncio
import logging
import os
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from forebay.app import event_loop
from forebay.app.commands.arguments import address, duration, pair
from forebay.app.commands.beginning import begun
from forebay.app.commands.numbers_page import NumbersPage
from forebay.app.commands.opened import answers, declare_store, nobody_there, store_url
from forebay.app.configuring.faults import Given, misconfigured
from forebay.app.configuring.reading import build
from forebay.app.configuring.schema import DELIVERY
from forebay.app.logs import set_up_logs
from forebay.app.opening import is_server, open_store
from forebay.deliver.deliveries import Deliveries
from forebay.deliver.queue_metrics import QueueDeliveryMetrics
from forebay.deliver.settings import QueueDeliverySettings
from forebay.model import Misconfigured
from forebay.store.seam import Store

__all__ = ["declare_deliver", "deliver", "delivery_settings", "process_title"]

logger: Final = logging.getLogger("forebay.deliver")

_FLAGS: Final = {
    "group": ("group", "NAME", "the consumer group (default: workers)"),
    "body": ("destination.body", "KIND", "message, json or ndjson: one message a request, or several"),
    "batch": ("destination.batch_messages_max", "N", "messages in a request, with json and ndjson"),
    "concurrency": ("destination.concurrency", "N", "requests that are under way at a time (default: 16)"),
    "rate": ("destination.requests_per_second", "N", "requests a second (default: no limit)"),
    "timeout": ("destination.timeout_seconds", "DURATION", "how long a request may take (default: 30s)"),
    "visibility": (
        "visibility_seconds", "DURATION", "how long messages of a dead process stay with it (default: 1m)",
    ),
    "retries": ("retries_max", "N", "how often a message is tried again (default: for ever)"),
    "disable_after": (
        "destination.disable_after_seconds", "DURATION", "pause by itself after failing for so long",
    ),
    "ca_file": ("destination.tls.ca_file", "FILE", "certificates that are trusted, in place of the system's"),
    "cert_file": ("destination.tls.cert_file", "FILE", "the certificate that we show"),
    "key_file": ("destination.tls.key_file", "FILE", "its key, where the certificate's file has none"),
}  # fmt: skip


def declare_deliver(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay deliver`."""
    parser.add_argument("queue", metavar="QUEUE", help="the queue")
    declare_destination(parser)
    parser.add_argument("--name", metavar="NAME", help="of the destination (default: its host)")
    parser.add_argument(
        "--stop", metavar="DURATION", type=duration, default="30s",
        help="how long requests may go on after a signal (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=address, help="serve /metrics and /healthz there"
    )
    declare_store(parser)
    levels = ("debug", "info", "warning", "error")
    parser.add_argument(
        "--log-level", choices=levels, default="info", help="the least serious that is written"
    )


def declare_destination(parser: argparse.ArgumentParser) -> None:
    """The arguments that make a destination."""
    parser.add_argument("--to", metavar="URL", required=True, help="where requests go")
    for flag, (_, metavar, text) in _FLAGS.items():
        parser.add_argument(f"--{flag.replace('_', '-')}", metavar=metavar, help=text)
    parser.add_argument(
        "--header", metavar="NAME=VALUE", type=pair, action="append", default=[],
        help="a header of every request; may be repeated",
    )  # fmt: skip
    parser.add_argument("--bearer-file", metavar="FILE", help="a file with a bearer token")
    parser.add_argument(
        "--secrets-file", metavar="FILE", help="sign requests: a file with whsec_ secrets, one a line"
    )
    parser.add_argument(
        "--public-only", action="store_true", help="refuse private, loopback and link-local addresses"
    )


def delivery_settings(arguments: argparse.Namespace) -> QueueDeliverySettings:
    """The settings that the arguments make; Misconfigured says everything that is wrong."""
    given = {
        "queue": Given(arguments.queue, "QUEUE"),
        "destination.url": Given(arguments.to, "--to"),
        "destination.headers": Given(msgspec.json.encode(dict(arguments.header)).decode(), "--header"),
        "destination.allow_private": Given("false" if arguments.public_only else "true", "--public-only"),
    }
    if arguments.bearer_file is not None:
        given["destination.auth.bearer"] = Given(_lines(arguments.bearer_file)[0], "--bearer-file")
    if arguments.secrets_file is not None:
        secrets = msgspec.json.encode(_lines(arguments.secrets_file)).decode()
        given["destination.signing_secrets"] = Given(secrets, "--secrets-file")
    for flag, (path, _, _) in _FLAGS.items():
        text: str | None = getattr(arguments, flag)
        if text is not None:
            given[path] = Given(text, f"--{flag.replace('_', '-')}")
    made, _, faults = build(DELIVERY, (given,), [])
    if faults:
        raise misconfigured(faults)
    assert isinstance(made, QueueDeliverySettings), "there are no faults"
    return made


def deliver(arguments: argparse.Namespace) -> int:
    """Deliver until a signal; `--json` is about the logs."""
    set_up_logs("json" if arguments.json else "auto", arguments.log_level)
    settings = delivery_settings(arguments)
    name = arguments.name or settings.destination.address.host.replace(":", "-")
    event_loop.run(_deliver(arguments, name, settings))
    return 0


async def _deliver(arguments: argparse.Namespace, name: str, settings: QueueDeliverySettings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        store = await begun(lambda: _opened(stack, arguments, settings.queue), stopping)
        if store is None:
            return
        deliveries = Deliveries(store, {name: settings}, process=process_title(), stop_seconds=arguments.stop)
        if arguments.metrics is not None:
            numbers = [QueueDeliveryMetrics(deliveries.running)]
            page = NumbersPage(numbers, lambda: _trouble(deliveries), arguments.metrics)
            await stack.enter_async_context(page)
        async with deliveries:
            await stopping.wait()
            logger.info("stopping")
    logger.info("stopped")


def _trouble(deliveries: Deliveries) -> str | None:
    """Why nothing is delivered, or None."""
    reasons = [delivery.paused_because for delivery in deliveries.running if delivery.paused_because]
    return reasons[0] if reasons else None


async def _opened(stack: AsyncExitStack, arguments: argparse.Namespace, queue: str) -> Store:
    """The store, which is closed with the stack; Unavailable if it isn't there, UnknownQueue without it."""
    url = store_url(arguments)
    if is_server(url) and not await answers(url):
        raise nobody_there(url)
    key = arguments.key or os.environ.get("FOREBAY_KEY") or None
    store = await stack.enter_async_context(open_store(url, key=key))
    await store.queue(queue)
    return store


def process_title() -> str:
    """A name for this process that people understand."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _lines(path: str) -> list[str]:
    """The lines of a small file with secrets, which are never quoted."""
    try:
        found = [line.strip() for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't text"
        raise Misconfigured(f"{path} can't be read: {why}", hint="name a file that is there") from None
    if not found:
        raise Misconfigured(f"{path} is empty", hint="write the secret into it")
    return found
