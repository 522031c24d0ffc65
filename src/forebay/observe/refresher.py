"""Refresher: makes a document again and again in the background, and publishes it while it is its turn.

Invariants: one process of all publishes at a time; a failure leaves what is current, is counted, said
once and noted beside it, and is tried again after a pause that doubles up to the interval, with chance in
it; a term is renewed while a document is made, and nothing is published in one that was taken over.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from forebay.model import ForebayError, Unavailable, cancel, redact
from forebay.observe.document import Document, encode_document
from forebay.observe.snapshot_store import SnapshotStore, Term, TermOver, meta_of

__all__ = ["RefreshNumbers", "Refresher", "pause_after"]

logger: Final = logging.getLogger("forebay.observe")

_REFRESHES_BEFORE_STALE: Final = 4
_PAUSE_SECONDS: Final = 0.5
_RENEWALS: Final = 3
"""How often a term is renewed while it would last."""


def pause_after(took: float, interval: float, *, rest: float, seconds_max: float) -> float:
    """Seconds until the next refresh, after one that took so many.

    It is `rest` times as long as that, where this is longer than the interval; but several refreshes come
    before a document is stale, after `seconds_max`.
    """
    return max(interval - took, min(rest * took, seconds_max / _REFRESHES_BEFORE_STALE), 0.0)


class RefreshNumbers:
    """Counts of refreshes by this process."""

    def __init__(self) -> None:
        self.refreshes: Counter[str] = Counter()
        """ok; error; waiting: it was another's turn."""
        self.seconds = 0.0
        """How long the last one took."""
        self.last_success_at: float | None = None
        self.last_failure_at: float | None = None
        self.error = ""
        self.outdated = 0
        """Those of `ok` that had to repeat a part which is older than it may be."""


class Refresher:
    """Publishes what `make` counts, within `seconds_max`. `run` ends when it is cancelled: others' turn.

    For `rest` see `pause_after`.

    `is_outdated` tells if the last document repeats a part which is older than it may be.
    """

    def __init__(
        self,
        store: SnapshotStore,
        make: Callable[[], Awaitable[Document]],
        *,
        owner: str,
        source: str,
        interval_seconds: float,
        term_seconds: float,
        seconds_max: float = math.inf,
        rest: float = 0.0,
        numbers: RefreshNumbers | None = None,
        is_outdated: Callable[[], bool] = lambda: False,
        chance: Callable[[], float] = random.random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._make = make
        self._owner = owner
        self._source = source
        self._interval = interval_seconds
        self._term_seconds = term_seconds
        self._seconds_max = seconds_max
        self._rest = rest
        self._is_outdated = is_outdated
        self._chance = chance
        self._wall = wall
        self._term: Term | None = None
        self.numbers = numbers or RefreshNumbers()

    async def run(self) -> None:
        """Refresh until cancelled."""
        failures = 0
        try:
            while True:
                began = time.monotonic()
                failures = 0 if await self.refresh() else failures + 1
                if failures:
                    pause = min(self._interval, _PAUSE_SECONDS * 2.0 ** min(failures, 32))
                    await asyncio.sleep(pause * (0.5 + self._chance() / 2))
                else:
                    took = time.monotonic() - began
                    pause = pause_after(took, self._interval, rest=self._rest, seconds_max=self._seconds_max)
                    await asyncio.sleep(pause)
        finally:
            await asyncio.shield(self._give_away())

    async def refresh(self) -> bool:
        """Refresh once, if it is our turn; False where that failed."""
        began = time.monotonic()
        try:
            term = self._term = await self._store.begin_term(self._owner, self._term_seconds)
            if term is None:
                self.numbers.refreshes["waiting"] += 1
                return True
            await self._publish(term, began)
        except TermOver as over:
            logger.warning("a snapshot came too late: %s", over)
            self.numbers.refreshes["waiting"] += 1
        except ForebayError as error:
            await self._failed(error)
            return False
        except Exception as error:  # whatever it is, the last good one is served, and people are told
            logger.exception("a snapshot failed in an unexpected way")
            await self._failed(error)
            return False
        return True

    async def _publish(self, term: Term, began: float) -> None:
        renewing = asyncio.create_task(self._renew(term), name="forebay-snapshot-term")
        try:
            document = await self._counted()
            data = await asyncio.to_thread(encode_document, document)
            seconds = time.monotonic() - began
            meta = meta_of(
                term,
                data,
                source=self._source,
                generated_at=self._wall(),
                seconds=seconds,
                rows=document.series,
            )
            await self._store.publish(term, data, meta)
        finally:
            await cancel(renewing)
        if self.numbers.error:
            logger.info("snapshots are published again")
        self.numbers.refreshes["ok"] += 1
        self.numbers.outdated += self._is_outdated()
        self.numbers.seconds, self.numbers.error = seconds, ""
        self.numbers.last_success_at = self._wall()

    async def _counted(self) -> Document:
        try:
            async with asyncio.timeout(None if math.isinf(self._seconds_max) else self._seconds_max):
                return await self._make()
        except TimeoutError:
            text = f"counting took longer than {self._seconds_max:g} seconds"
            raise Unavailable(text, hint="see if the log is slow, or raise max_staleness") from None

    async def _renew(self, term: Term) -> None:
        while True:
            await asyncio.sleep(self._term_seconds / _RENEWALS)
            try:
                await self._store.renew_term(term, self._term_seconds)
            except ForebayError as error:  # the publication finds out whether it matters
                logger.debug("the term of a snapshot can't be renewed: %s", error)

    async def _failed(self, error: Exception) -> None:
        said = redact(str(error)) or type(error).__name__
        if said != self.numbers.error:
            logger.warning("the snapshot can't be refreshed, and the last one is served: %s", said)
        self.numbers.refreshes["error"] += 1
        self.numbers.error, self.numbers.last_failure_at = said, self._wall()
        if self._term is not None:
            try:
                await self._store.note_failure(self._term, said)
            except ForebayError as trouble:  # whoever reads sees by its age that it isn't made any more
                logger.debug("the failure can't be noted beside the snapshot: %s", trouble)

    async def _give_away(self) -> None:
        if self._term is None:
            return
        try:
            async with asyncio.timeout(self._term_seconds):
                await self._store.end_term(self._term)
        except (ForebayError, TimeoutError):
            return  # it runs out by itself
