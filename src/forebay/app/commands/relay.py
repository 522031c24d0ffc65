"""`forebay relay`: HTTP in, onto local disk, HTTP out; `plan` sizes one."""

import argparse
import asyncio
import logging
import math
import signal
import sys
from collections.abc import Iterator
from typing import Final

from forebay.app.commands.arguments import count, duration
from forebay.app.commands.output import print_json, print_line
from forebay.app.logs import set_up_logs
from forebay.app.relay_settings import declare_relay_flags, load_relay
from forebay.app.settings import RelayConfig
from forebay.deliver.sizes import Plan, plan, sizes
from forebay.model import Rejected, format_seconds, parse_bytes
from forebay.relay.settings import check_exposure
from forebay.wire.port import listen, raise_files_limit

__all__ = ["declare_plan", "declare_relay", "relay", "show_plan"]

logger: Final = logging.getLogger("forebay.relay")
_SWITCH_SECONDS: Final = 0.0001
"""How long the disk's thread waits for the interpreter: whoever pushes waits for that."""

_MINUTE: Final = 60


def declare_relay(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay`."""
    declare_relay_flags(parser)


def relay(arguments: argparse.Namespace) -> int:
    """Relay until a signal; the address is printed when the port is open."""
    config = load_relay(arguments)
    warning = check_exposure(config.relay)
    set_up_logs(config.logging.format, config.logging.level)
    if warning is not None:
        logger.warning(warning)
    sys.setswitchinterval(_SWITCH_SECONDS)
    from forebay.app import event_loop  # noqa: PLC0415 - other commands don't need it

    event_loop.run(_relay(config))
    return 0


async def _relay(config: RelayConfig) -> None:
    from forebay.app.relay_parts import open_relay  # noqa: PLC0415 - likewise

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    raise_files_limit(config.relay.limits.connections_max)
    sock = listen(config.relay.listen)
    host, port = sock.getsockname()[:2]
    scheme = "http" if config.relay.tls_cert is None else "https"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    try:
        opened = await open_relay(config)
    except BaseException:
        sock.close()
        raise
    await opened.start(sock)
    print_line(address)
    for delivery in opened.deliveries:
        logger.info(
            "relaying %s to %s, %d entries are queued", address, delivery.destination.name,
            delivery.queue.size, extra={"destination": delivery.destination.name},
        )  # fmt: skip
    await stopping.wait()
    logger.info("stopping")
    await opened.stop()
    logger.info("stopped")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except Rejected as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e12:  # noqa: PLR2004 - more than any machine
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a number of entries a second")
    return value


def declare_plan(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay relay plan`."""
    declare_relay_flags(parser, only_queue=True)
    parser.add_argument("--entry", metavar="SIZE", type=_size, default="50k", help="an entry (default: 50k)")
    parser.add_argument(
        "--latency", metavar="DURATION", type=duration, default="50ms", help="of a send (default: 50ms)"
    )
    parser.add_argument(
        "--rate", metavar="NUMBER", type=_rate, default="0", help="entries that come in a second (default: 0)"
    )
    parser.add_argument(
        "--destinations", metavar="NUMBER", type=count, default=1,
        help="that share memory and disk; what is printed is for each (default: 1)",
    )  # fmt: skip
    parser.add_argument("--disk", metavar="SIZE", type=_size, help="what the disk has free (default: enough)")
    parser.add_argument("--memory", metavar="SIZE", type=_size, help="the container's limit (default: none)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def show_plan(arguments: argparse.Namespace) -> int:
    """Print what a relay with these settings can take, and how soon it is empty again."""
    config = load_relay(arguments)
    if arguments.latency <= 0 or arguments.entry <= 0:
        raise Rejected("an entry and a latency are more than 0", hint="give --entry and --latency")
    settings = config.exporter.queue.resolve()
    limits = sizes(
        settings,
        memory_limit=arguments.memory,
        disk_bytes=arguments.disk,
        destinations=arguments.destinations,
    )
    found = plan(
        settings,
        limits,
        entry_bytes=arguments.entry,
        latency_seconds=arguments.latency,
        arriving_per_second=arguments.rate,
    )
    if arguments.json:
        print_json(found)
        return 0
    for name, text in _lines(found):
        print_line(f"{name:<32}{text}")
    return 0


def _lines(found: Plan) -> Iterator[tuple[str, str]]:
    yield "in memory", _size_text(found.memory_bytes)
    yield "on disk", _size_text(found.disk_bytes)
    yield "entries that fit", f"{found.entries:,}"
    yield "entries that leave in a second", f"{found.drain_per_second:,.1f}"
    yield "a full queue is empty after", _span(found.drain_seconds)
    if found.outage_seconds is not None:
        yield "an outage may last", _span(found.outage_seconds)
        caught = found.catch_up_seconds
        yield (
            "and is made up for after",
            "never: more comes than leaves" if caught is None else _span(caught),
        )


def _size_text(size: int) -> str:
    """A size as exact as it matters."""
    for unit, factor in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g}{unit}"
    return f"{size}B"


def _span(seconds: float) -> str:
    """A duration as exact as it matters."""
    return format_seconds(round(seconds, 1) if seconds < _MINUTE else round(seconds))
