"""A relay out of its settings: a queue, a destination and a delivery for each address."""

import asyncio
import logging
import shlex
from pathlib import Path
from typing import Final, NamedTuple

from forebay.app.relay_settings import addresses
from forebay.app.settings import RelayConfig
from forebay.deliver.control import QueueControl
from forebay.deliver.delivery import Delivery
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.settings import DestinationSettings, TlsSettings
from forebay.deliver.storage import folder_name, open_send_queue
from forebay.disk import RealDisk
from forebay.fastqueue.formats import formats_in
from forebay.model import Misconfigured, SystemClock
from forebay.relay.destinations import (
    DestinationSecrets,
    RelayAuthSettings,
    RelayDestinationSettings,
    queue_of,
)
from forebay.relay.relay import Relay
from forebay.relay.settings import RelaySettings
from forebay.relay.target import MappedDestination
from forebay.relay.tls import certificate_of
from forebay.relay.tokens import tokens_of

__all__ = ["open_relay"]

logger: Final = logging.getLogger("forebay.relay")


async def open_relay(config: RelayConfig) -> Relay:
    """Open the queues, and read what the last run left in them; `start` and `stop` are the caller's."""
    queue = config.exporter.queue.resolve()
    chosen = _destinations(config, queue)
    folders = [Path(queue.path) / folder_name(each.settings.address.name) for each in chosen]
    _warn_of_others(Path(queue.path), folders, queue)
    sends = asyncio.Semaphore(queue.global_send_limit)
    clock = SystemClock().now
    # All files that may be bad are read before the first queue is opened: a refused start changes nothing.
    opened = [HttpDestination(each.settings) for each in chosen]
    secrets = [
        DestinationSecrets(each.auth, each.settings, destination)
        for each, destination in zip(chosen, opened, strict=True)
        if each.auth.files
    ]
    certificate, tokens = certificate_of(config.relay), tokens_of(config.relay)
    deliveries: list[Delivery] = []
    try:
        for each, destination, folder in zip(chosen, opened, folders, strict=True):
            kept = await open_send_queue(folder, each.queue, clock=clock, folders=folders)
            mapped = MappedDestination(destination, each.settings.address.target)
            deliveries.append(
                Delivery(kept, mapped, each.queue, sends=sends, clock=clock, rate=each.settings.rate_rule)
            )
    except BaseException:
        for delivery in deliveries:
            await delivery.queue.close()
        raise
    is_kept = queue.type == "disk" and queue.enabled
    controls = [
        QueueControl(delivery.queue, folder)
        for delivery, folder in zip(deliveries, folders, strict=True)
        if is_kept
    ]
    return Relay(
        config.relay, queue, deliveries, controls, certificate=certificate, tokens=tokens, secrets=secrets
    )


class _Chosen(NamedTuple):
    """A destination, the settings of its queue, and how it is told who we are."""

    settings: DestinationSettings
    queue: SendQueueSettings
    auth: RelayAuthSettings


def _destinations(config: RelayConfig, queue: SendQueueSettings) -> list[_Chosen]:
    found = [
        *(_plain(config.relay, queue, url) for url in addresses(config)),
        *(_with_options(config.relay, queue, name) for name in config.relay.destinations),
    ]
    names = [each.settings.address.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"the destination {name} is there twice", hint="name it once", key="relay.to")
    return found


def _plain(relay: RelaySettings, queue: SendQueueSettings, url: str) -> _Chosen:
    """A destination of `relay.to`."""
    auth = RelayAuthSettings()
    return _Chosen(_made(relay, queue, RelayDestinationSettings(url=url)), queue, auth)


def _with_options(relay: RelaySettings, queue: SendQueueSettings, name: str) -> _Chosen:
    """A destination of `relay.destinations`."""
    given = relay.destinations[name]
    own = queue_of(queue, given.concurrency)
    try:
        return _Chosen(_made(relay, own, given), own, given.auth)
    except Misconfigured as error:
        key = f"relay.destinations.{name}.auth.{error.key}"
        raise Misconfigured(error.message, hint=error.hint, key=key) from None


def _made(
    relay: RelaySettings, queue: SendQueueSettings, given: RelayDestinationSettings
) -> DestinationSettings:
    return given.made(
        given.auth.read(),
        tls=TlsSettings(ca_file=relay.ca_file, cert_file=relay.cert_file, key_file=relay.key_file),
        seconds=relay.send_seconds,
        retry_auth=relay.retry_auth,
        concurrency=_sends_max(queue),
    )


def _sends_max(queue: SendQueueSettings) -> int:
    """The requests that may be under way to one destination."""
    split = queue.pipeline_split
    workers = split.sender_count * queue.max_concurrent_sends if split.enabled else queue.workers
    if queue.adaptive_workers.enabled:
        each = queue.max_concurrent_sends if split.enabled else 1
        workers = max(workers, queue.adaptive_workers.max_workers * each)
    return min(workers, queue.global_send_limit, 10_000)


def _import_commands(path: Path, folders: list[Path]) -> list[str]:
    return [
        f"forebay fastqueue import {shlex.quote(str(path))} --to {shlex.quote(str(folder))} --append"
        " --as 'POST /v1/metrics application/x-protobuf'"
        for folder in folders
    ]


def _warn_of_others(path: Path, folders: list[Path], queue: SendQueueSettings) -> None:
    """Entries for a destination that isn't named any more are kept, and sent by nobody."""
    if queue.type != "disk" or not path.is_dir():
        return
    if formats_in(RealDisk(path)):
        logger.warning(
            "%s holds files of another queue, such as metrics-governor's; nothing of them is sent. Stop this"
            " relay, bring them in, and move the files away: %s",
            path, "; ".join(_import_commands(path, folders)), extra={"folder": str(path)},
        )  # fmt: skip
    for folder in sorted(path.iterdir()):
        if folder.is_dir() and folder not in folders and any(folder.iterdir()):
            logger.warning(
                "%s is the queue of a destination that isn't named; nothing of it is sent", folder,
                extra={"folder": str(folder)},
            )  # fmt: skip
