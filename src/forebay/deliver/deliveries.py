"""Deliveries: several queues, each on its way to its destination, as long as the store is open.

Every two seconds each says on the board how it is, and hears there whether it is paused. A board that is away
changes nothing. One that disables itself says so there, and stays so until it is resumed there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from forebay.deliver.destination_board import (
    DestinationBoard,
    DestinationPause,
    DestinationReport,
    destination_board_of,
)
from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.queue_delivery import QueueDelivery
from forebay.deliver.settings import QueueDeliverySettings
from forebay.model import ForebayError, cancel
from forebay.store.seam import Store

__all__ = ["Deliveries"]

logger: Final = logging.getLogger("forebay.deliver")

REPORT_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 5.0


class Deliveries:
    """Runs from `async with` on, and stops in order at its end."""

    def __init__(
        self,
        store: Store,
        settings: Mapping[str, QueueDeliverySettings],
        *,
        process: str,
        stop_seconds: float = 30.0,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._process = process
        self._stop_seconds = stop_seconds
        self._report_seconds = report_seconds
        self._board: DestinationBoard | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reporting: list[asyncio.Task[None]] = []
        self.running: list[QueueDelivery] = []

    async def __aenter__(self) -> Self:
        self._board = destination_board_of(self._store)
        # Every destination is made before the first begins: a bad certificate file starts none of them.
        destinations = {
            name: HttpDestination(one.destination, sends_id=True) for name, one in self._settings.items()
        }
        for name, destination in destinations.items():
            delivery = QueueDelivery(
                self._store, destination, self._settings[name], name=name, worker=self._process
            )
            self.running.append(delivery)
            self._tasks.append(asyncio.create_task(self._run(delivery), name=f"forebay-deliver-{name}"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for delivery in self.running:
            delivery.stop(self._stop_seconds)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until a delivery ends that nobody stopped, and raise why."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _run(self, delivery: QueueDelivery) -> None:
        to = delivery.settings.destination.address.name
        logger.info("delivering %s to %s", delivery.settings.queue, to, extra={"destination": delivery.name})
        # A pause that somebody said before this process began has to be known before the first message.
        pause = await self._report(delivery, None)
        reporting = asyncio.create_task(self._report_all(delivery, pause))
        try:
            await delivery.run()
        except Exception:
            logger.exception("nothing more is delivered to %s: restart this process", delivery.name)
            raise
        finally:
            await cancel(reporting)

    async def _report_all(self, delivery: QueueDelivery, pause: DestinationPause | None) -> None:
        while True:
            await asyncio.sleep(self._report_seconds)
            pause = await self._report(delivery, pause)

    async def _report(
        self, delivery: QueueDelivery, before: DestinationPause | None
    ) -> DestinationPause | None:
        """Say how it is, and do what is heard; the pause that is known now."""
        if self._board is None:
            return None
        try:
            report = self._report_of(delivery, is_new=before is None)
            pause = (await self._board.report_destination(report)).pause
        except ForebayError as error:
            logger.warning("destination %s can't be reported: %s", delivery.name, error)
            return before
        _follow(delivery, before, pause)
        return pause

    def _report_of(self, delivery: QueueDelivery, *, is_new: bool) -> DestinationReport:
        """`is_new`: no pause is known, so if there is one the delivery itself began it."""
        counts, settings = delivery.counts, delivery.settings
        return DestinationReport(
            name=delivery.name,
            process=self._process,
            url=settings.destination.address.name,
            queue=settings.queue,
            group=settings.group,
            breaker=delivery.admission.breaker.state.value,
            in_hand=delivery.in_hand,
            delivered=counts.delivered,
            failed=sum(counts.failures.values()),
            buried=sum(counts.buried.values()),
            last_failure=delivery.last_failure,
            disabled_because=(delivery.paused_because or "") if is_new else "",
        )


def _follow(delivery: QueueDelivery, before: DestinationPause | None, pause: DestinationPause | None) -> None:
    if pause is not None and delivery.paused_because is None:
        logger.warning("destination %s is paused: %s", delivery.name, pause.reason)
        delivery.pause(pause.reason or "paused")
    elif pause is None and before is not None:
        # Only a pause that was known can have been ended: it may have disabled itself since it reported.
        logger.info("destination %s is resumed", delivery.name)
        delivery.resume()
