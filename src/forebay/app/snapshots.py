"""The snapshot of queues in a server: where it is kept, who refreshes it, and who follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from time import time
from typing import Final

from forebay.app.opening import split_warm
from forebay.app.settings import Settings
from forebay.log.values import QueueStats, Stats
from forebay.model import Misconfigured, cancel
from forebay.observe.document import Document, merged
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.follower import Follower
from forebay.observe.queue_families import queue_families
from forebay.observe.refresher import Refresher, RefreshNumbers
from forebay.observe.snapshot_store import SnapshotStore
from forebay.store.seam import Store
from forebay.store.values import FlowStat, FlowStats, GroupState

__all__ = ["following", "open_snapshots", "refreshing"]

_PAGE_QUEUES: Final = 500
"""So few that a page takes milliseconds."""
REST: Final = 9.0
"""How much longer than counting takes it rests: a tenth of a core, however many queues there are."""
SOURCE: Final = "counters"
RICH: Final = "rich"
"""The part that Spark computes."""


def open_snapshots(settings: Settings, part: str | None = None) -> AbstractAsyncContextManager[SnapshotStore]:
    """The place of snapshots: a Valkey where one is set or shared, or else a folder of this machine.

    A `part` that is computed elsewhere has a place of its own beside it.
    """
    section = settings.metrics.queue_snapshot
    url = section.url or settings.store.warm or split_warm(settings.store.address)[1]
    if url is not None:
        from forebay.observe.valkey_snapshots import ValkeySnapshots  # noqa: PLC0415 - only with the valkey extra

        prefix = section.redis_prefix if part is None else f"{section.redis_prefix}:{part}"
        return ValkeySnapshots(url, prefix=prefix, keep_versions=section.keep_versions)
    if section.leader_only:
        raise Misconfigured(
            "leader_only needs a snapshot that servers share",
            hint="name a Valkey as metrics.queue_snapshot.url or store.warm, or leave it out",
            key="metrics.queue_snapshot.leader_only",
        )
    folder = Path(settings.store.data) / "snapshot" / (part or "")
    return nullcontext(FileSnapshots(folder, keep_versions=section.keep_versions))


@asynccontextmanager
async def following(
    snapshots: SnapshotStore, settings: Settings, owner: str, numbers: RefreshNumbers
) -> AsyncIterator[Follower]:
    """Keep the current snapshot at hand, also while there is no log."""
    section = settings.metrics.queue_snapshot
    follower = Follower(
        snapshots,
        max_staleness_seconds=section.max_staleness,
        parts_max={RICH: section.rich_staleness},
        numbers=numbers,
        shown_owner=owner if section.leader_only else None,
        names=settings.metrics.names,
    )
    task = asyncio.create_task(follower.run(), name="forebay-snapshot-follower")
    try:
        yield follower
    finally:
        await cancel(task)


@asynccontextmanager
async def refreshing(
    snapshots: SnapshotStore, settings: Settings, owner: str, numbers: RefreshNumbers, store: Store
) -> AsyncIterator[None]:
    """Publish what the store counts, together with what Spark computes, again and again."""
    section = settings.metrics.queue_snapshot
    async with open_snapshots(settings, RICH) as parts:
        rich = Follower(parts, max_staleness_seconds=section.rich_staleness)

        def is_outdated() -> bool:
            return rich.document is not None and time() - rich.document.taken_at > section.rich_staleness

        async def count() -> Document:
            await rich.look()
            counted = await count_queues(store)
            if rich.document is None or rich.meta is None:
                return merged(SOURCE, counted, {})
            seconds = rich.meta.aggregation_duration_ms / 1000
            return merged(SOURCE, counted, {RICH: rich.document}, {RICH: seconds})

        refresher = Refresher(
            snapshots,
            count,
            owner=owner,
            source=SOURCE,
            interval_seconds=section.refresh_interval,
            term_seconds=section.lock_ttl,
            seconds_max=section.max_staleness,
            rest=REST,
            numbers=numbers,
            is_outdated=is_outdated,
        )
        task = asyncio.create_task(refresher.run(), name="forebay-snapshot-refresher")
        try:
            yield
        finally:
            await cancel(task)


async def count_queues(store: Store) -> Document:
    """The numbers of all queues as the store has them, page by page: others have their turn in between."""
    pages, flows, after = list[QueueStats](), list[FlowStat](), 0
    groups, began = list[GroupState](), time()
    while True:
        books = await store.ledger(after=after, limit=_PAGE_QUEUES)
        found = await store.flow_stats(after=after, limit=_PAGE_QUEUES, books=books)
        pages.extend(books.queues)
        flows.extend(found.flows)
        groups.extend(found.groups)
        if books.next is None:
            break
        after = books.next
    stats, counted = Stats(books.at, pages), FlowStats(found.at, flows, groups)
    families = await asyncio.to_thread(queue_families, stats, counted)
    return Document(taken_at=began, families=families)
