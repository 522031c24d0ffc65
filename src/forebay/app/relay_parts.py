"""A relay out of its settings: a queue, a destination and a delivery for each address."""

import asyncio
import logging
import shlex
from pathlib import Path
from typing import Final

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
    settings = _destinations(config, queue)
    folders = [Path(queue.path) / folder_name(each.address.name) for each in settings]
    _warn_of_others(Path(queue.path), folders, queue)
    sends = asyncio.Semaphore(queue.global_send_limit)
    clock = SystemClock().now
    # All files that may be bad are read before the first queue is opened: a refused start changes nothing.
    destinations = [MappedDestination(HttpDestination(each), each.address.target) for each in settings]
    certificate, tokens = certificate_of(config.relay), tokens_of(config.relay)
    deliveries: list[Delivery] = []
    try:
        for destination, folder in zip(destinations, folders, strict=True):
            kept = await open_send_queue(folder, queue, clock=clock, folders=folders)
            deliveries.append(Delivery(kept, destination, queue, sends=sends, clock=clock))
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
    return Relay(config.relay, queue, deliveries, controls, certificate=certificate, tokens=tokens)


def _destinations(config: RelayConfig, queue: SendQueueSettings) -> list[DestinationSettings]:
    found = [_destination(config.relay, queue, url) for url in addresses(config)]
    names = [each.address.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"the destination {name} is there twice", hint="name it once", key="relay.to")
    return found


def _destination(relay: RelaySettings, queue: SendQueueSettings, url: str) -> DestinationSettings:
    """The settings of one destination; its addresses are the operator's, so private ones are fine."""
    return DestinationSettings(
        url=url,
        tls=TlsSettings(ca_file=relay.ca_file, cert_file=relay.cert_file, key_file=relay.key_file),
        timeout_seconds=relay.send_seconds,
        concurrency=_sends_max(queue),
        allow_private=True,
        retry_auth=relay.retry_auth,
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
