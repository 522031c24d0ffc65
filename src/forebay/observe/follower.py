"""Follower: has the current snapshot at hand, so that a scrape waits for nobody.

It looks for a newer one every second. What it has is shown as long as there is no newer one, however old it
gets: its age says so, and past `max_staleness` so does a metric of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from forebay.model import ForebayError, redact
from forebay.observe.document import (
    PART_AGE,
    PART_SECONDS,
    Document,
    Family,
    decode_document,
    snapshot_family,
)
from forebay.observe.exposition import Exposition, render
from forebay.observe.history import History
from forebay.observe.refresher import RefreshNumbers
from forebay.observe.seed_names import named
from forebay.observe.snapshot_store import Published, SnapshotMeta, SnapshotStore

__all__ = ["Follower"]

logger: Final = logging.getLogger("forebay.observe")

LOOK_SECONDS: Final = 1.0
_STATUSES: Final = ("ok", "error", "waiting")


class Follower:
    """The snapshot at hand.

    `parts_max` says how old single parts may be, in seconds; `max_staleness_seconds` is for the others.
    `numbers` are those of the refresher beside it; `names` says under whose names series are shown. With
    `shown_owner` the series of other owners' snapshots aren't shown.
    """

    def __init__(
        self,
        store: SnapshotStore,
        *,
        max_staleness_seconds: float,
        parts_max: Mapping[str, float] | None = None,
        numbers: RefreshNumbers | None = None,
        shown_owner: str | None = None,
        names: Collection[str] = ("forebay",),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._max_staleness = max_staleness_seconds
        self._parts_max = dict(parts_max or {})
        self._numbers = numbers or RefreshNumbers()
        self._shown_owner = shown_owner
        self._names = frozenset(names)
        self._wall = wall
        self._version = 0
        self._texts: dict[bool, Exposition] = {}
        self.history = History()
        self.document: Document | None = None
        self.meta: SnapshotMeta | None = None
        self.problem: str | None = None
        """Why it can't look for newer ones."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Take the current snapshot, unless it is the one at hand; what can't be read leaves that."""
        try:
            found = await self._store.current(self._version)
            if found is not None:
                await asyncio.to_thread(self._take, found)
        except ForebayError as error:
            said = redact(str(error))
            if said != self.problem:
                logger.warning("no newer snapshot can be read: %s", said)
            self.problem = said
        except Exception as error:  # a publisher of another version may have written anything
            said = redact(f"{type(error).__name__}: {error}".removesuffix(": "))
            if said != self.problem:
                logger.exception("no newer snapshot can be read, which nobody expected")
            self.problem = said
        else:
            self.problem = None

    def _take(self, found: Published) -> None:
        document = decode_document(found.data)
        shown = named(document, self._names)
        self._texts = {
            open_metrics: Exposition(shown, open_metrics=open_metrics) for open_metrics in (False, True)
        }
        self.history.add(document)
        self.document, self.meta, self._version = document, found.meta, found.version

    @property
    def version(self) -> int:
        """Of the snapshot at hand; 0 before the first."""
        return self._version

    @property
    def age_seconds(self) -> float | None:
        """How long ago the snapshot at hand was made; None before the first."""
        return None if self.meta is None else max(0.0, self._wall() - self.meta.generated_at_unix)

    @property
    def is_stale(self) -> bool:
        """Tell if it is older than it may be, or there is none."""
        age = self.age_seconds
        return age is None or age > self._max_staleness

    def exposition(self, *, open_metrics: bool) -> Exposition | None:
        """The snapshot's families as text, if they are for this process to show."""
        return None if self.shown_document is None else self._texts.get(open_metrics)

    def health(self, *, open_metrics: bool) -> bytes:
        """The text of what is to be said of the snapshot."""
        return "".join([render(each, open_metrics=open_metrics) for each in self._health()]).encode()

    @property
    def shown_document(self) -> Document | None:
        """The document at hand, if its series are for this process to show."""
        is_shown = self.meta is not None and self._shown_owner in (None, self.meta.owner)
        return self.document if is_shown else None

    def _health(self) -> list[Family]:
        own = [*self._freshness(), *self._refreshes()] if "forebay" in self._names else []
        return [*own, *self._convoys_health()] if "convoy" in self._names else own

    def _shown_parts(self, name: str) -> Mapping[str, float]:
        """A number of each part of the snapshot, where its series are shown."""
        return {} if self.shown_document is None else parts_of(self.shown_document, name)

    def _stale_parts(self, document: Document) -> Family:
        now, ages = self._wall(), parts_of(document, PART_AGE)
        limits = {part: self._parts_max.get(part, self._max_staleness) for part in ages}
        found = [((part,), float(now - at > limits[part])) for part, at in ages.items()]
        return snapshot_family("forebay_snapshot_part_stale", found)

    def _convoys_health(self) -> list[Family]:
        numbers, prefix = self._numbers, "convoy_queue_metrics"
        refreshes = numbers.refreshes + Counter(error=numbers.outdated)
        refreshes["ok"] -= numbers.outdated
        counts = [((status,), float(refreshes[status])) for status in _STATUSES]
        age, made_at = self.age_seconds, numbers.last_success_at
        seconds, oldest = numbers.seconds, min(self._shown_parts(PART_AGE).values(), default=None)
        if age is not None and oldest is not None:
            age = max(age, self._wall() - oldest)
        if made_at is not None and oldest is not None:
            made_at = min(made_at, oldest)
        times = {
            f"{prefix}_snapshot_age_seconds": age,
            f"{prefix}_refresh_duration_seconds": max(
                seconds, *self._shown_parts(PART_SECONDS).values(), 0.0
            ),
            f"{prefix}_snapshot_last_success_timestamp_seconds": made_at,
        }
        return [
            snapshot_family(f"{prefix}_refresh_total", counts),
            *(snapshot_family(name, [((), value)]) for name, value in times.items() if value is not None),
        ]

    def _refreshes(self) -> list[Family]:
        numbers = self._numbers
        counts = [((status,), float(numbers.refreshes[status])) for status in _STATUSES]
        times = {"success": numbers.last_success_at, "failure": numbers.last_failure_at}
        return [
            snapshot_family("forebay_snapshot_refreshes_total", counts),
            snapshot_family("forebay_snapshot_refresh_duration_seconds", [((), numbers.seconds)]),
            *(
                snapshot_family(f"forebay_snapshot_last_{name}_timestamp_seconds", [((), at)])
                for name, at in times.items()
                if at is not None
            ),
        ]

    def _freshness(self) -> list[Family]:
        age, meta = self.age_seconds, self.meta
        found = [snapshot_family("forebay_snapshot_stale", [((), float(self.is_stale))])]
        if meta is None or age is None or self.document is None:
            return found
        folded = [((each.name,), float(each.folded)) for each in self.document.families if each.folded]
        seconds = meta.aggregation_duration_ms / 1000
        return [
            *found,
            snapshot_family("forebay_snapshot_age_seconds", [((), age)]),
            self._stale_parts(self.document),
            snapshot_family("forebay_snapshot_series", [((), meta.rows_total)]),
            snapshot_family("forebay_snapshot_aggregation_seconds", [((), seconds)]),
            snapshot_family("forebay_snapshot_folded_series", folded),
        ]


def parts_of(document: Document, name: str) -> Mapping[str, float]:
    """A number of each part of a document; none where it isn't merged of parts."""
    families = [each for each in document.families if each.name == name]
    return {labels[0]: number for each in families for labels, number in each.series}
