"""Client: the store's verbs over HTTP.

Invariants: what returns has happened, as with a store in this process; errors are the same; a push keeps its
block id through all attempts, so it is one write, also where it is spooled first. What is sent again, and
what that means, is in docs/adr/0015-what-a-client-may-repeat.md. It is long because it holds all verbs of the
seam, to be read beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from os import getpid
from pathlib import Path
from random import random
from socket import gethostname
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from forebay.client.address import part
from forebay.client.calling import Ask, Caller, Reply, decoded
from forebay.client.doubting import LOOKED_AT_MAX, Ending, endings_of, has_ended, unknown
from forebay.client.pausing import pause_seconds
from forebay.client.spooling import Outbox, Server
from forebay.deliver.destination_board import (
    DestinationBoard,
    DestinationReport,
    Destinations,
    DestinationStatus,
    PauseForm,
)
from forebay.deliver.tester import DestinationTest, DestinationTester
from forebay.failover.settings import FailoverSettings
from forebay.failover.status import SpoolStatus
from forebay.ingest.merging import Merger, Written
from forebay.log.values import (
    Append,
    Appended,
    DeadLetter,
    Durable,
    Group,
    Position,
    Queue,
    Receipt,
    RejectedRow,
    Start,
    Stats,
    StoredBlock,
)
from forebay.model import (
    BLOCK_BYTES_CEILING,
    BLOCK_MESSAGES_CEILING,
    Block,
    Clock,
    ForebayError,
    LeaseLost,
    Limits,
    Message,
    Rejected,
    SystemClock,
    UnknownQueue,
    check_block,
    encode,
    format_id,
    mint,
    parse_id,
    unpack,
    whole,
)
from forebay.store.asking import (
    addressed,
    checked_begin,
    checked_count,
    checked_partitions,
    checked_seconds,
    raise_for_lost,
)
from forebay.store.letters import Letters
from forebay.store.seam import Store
from forebay.store.tickets import check_code, check_reason, check_time, leases_of
from forebay.store.values import (
    DEFAULT_GROUP,
    Burial,
    FlowStats,
    Peeked,
    Purged,
    Retry,
    Running,
    StoreStats,
    Task,
    Ticket,
    Whereabouts,
)
from forebay.store.waiting import names_of
from forebay.wire.forms import Deleted, Extended, Push, Queues, Settled, Staged
from forebay.wire.media import BLOCK
from forebay.work.board import Board, Crew, Instructions, Lead, Orders, Told
from forebay.work.values import WorkerReport

T = TypeVar("T")
Paged = TypeVar("Paged", Stats, StoreStats, FlowStats)

WAIT_SECONDS: Final = 25.0
"""How long one request waits for a task at most: so long it may take to notice that nobody is there."""
PAGE: Final = 1_000
STATS_PAGE: Final = 1_000
"""Queues whose numbers are asked for in one request."""
IDS_MAX: Final = 50_000
"""Ids of dead letters in one request."""
_LOOKS_MAX: Final = 8
_CEILINGS: Final = Limits(
    message_bytes_max=BLOCK_BYTES_CEILING // 2,
    headers_bytes_max=BLOCK_BYTES_CEILING // 4,
    block_messages_max=BLOCK_MESSAGES_CEILING,
    block_bytes_max=BLOCK_BYTES_CEILING,
)
"""What can be encoded at all; what may be pushed is the server's to say."""
_SECOND: Final = 1_000_000
_encoder: Final = msgspec.msgpack.Encoder()


class Client:
    """A store on a server, at its address (`http://` or `https://`). Opened with `async with`; share it.

    `key` is an API key. `ca_file` has the certificates that the server's own is checked against, instead of
    the system's. A call gives up after `timeout_seconds`, however often it was tried. There are at most
    `connections_max` connections, and as many again on which takes wait. `worker` is who takes tasks, for
    people. `clock` says when pushes were made.

    `spool` is a folder that takes pushes while the server is away, and delivers them later: one client at a
    time has it, and what is left in it is for the next one. `spool_settings` say how long the server is
    waited for before that, and how files are written.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = 30.0,
        connections_max: int = 100,
        worker: str | None = None,
        clock: Clock | None = None,
        spool: str | Path | None = None,
        spool_settings: FailoverSettings | None = None,
    ) -> None:
        self._caller = Caller(
            url,
            key=key,
            ca_file=ca_file,
            timeout_seconds=timeout_seconds,
            connections_max=connections_max,
        )
        self._worker = worker or f"{gethostname()}:{getpid()}"
        self._clock = clock or SystemClock()
        self._merger = Merger(self._push_messages)
        self._names: dict[int, str] = {}
        self._spool = None if spool is None else Path(spool)
        self._spool_settings = spool_settings or FailoverSettings()
        self._outbox: Outbox | None = None

    def __repr__(self) -> str:
        """Say where it leads."""
        return f"<{type(self).__name__} {self._caller.server}>"

    async def __aenter__(self) -> Self:
        self._caller.open()
        if self._spool is not None:
            try:
                self._outbox = await self._open_spool(self._spool)
            except BaseException:
                await self._caller.close()
                raise
        return self

    async def _open_spool(self, folder: Path) -> Outbox:
        server, settings = Server(self._post, self.queue), self._spool_settings
        outbox = await Outbox.open(
            folder, settings, server, self._caller, limits=_CEILINGS, clock=self._clock
        )
        return await outbox.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        outbox, self._outbox = self._outbox, None
        try:
            await self._merger.close()
        finally:
            if outbox is not None:
                await outbox.__aexit__(kind, error, trace)
            await self._caller.close()

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        """Make a queue with its group `workers`, or return the one of that name as it is."""
        form = {"settings": settings or {}, "number": number}
        return await self._send("PUT", _queue(name), Queue, form)

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        """Change settings of a queue; what isn't named keeps its value."""
        return await self._send("PATCH", _queue(name), Queue, settings)

    async def pause(self, name: str) -> Queue:
        """Hand out nothing more of a queue until it is resumed; pushes and settling go on."""
        return await self._send("POST", f"{_queue(name)}/pause", Queue)

    async def resume(self, name: str) -> Queue:
        """Hand out again."""
        return await self._send("POST", f"{_queue(name)}/resume", Queue)

    async def queue(self, name: str) -> Queue:
        """The queue of that name, as the log has it now."""
        return await self._send("GET", _queue(name), Queue)

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        """Queues by number: all, those of `numbers`, or up to `limit` from the first past `after` on."""
        if numbers is not None:
            each = [await self._page(number - 1, 1) for number in sorted(set(numbers)) if number > after]
            found = [queue for page in each for queue in page.queues]
            return [queue for queue in found if queue.number in numbers][:limit]
        found, upto = list[Queue](), after if limit is None or limit > 0 else None
        while upto is not None and (limit is None or len(found) < limit):
            page = await self._page(upto, PAGE if limit is None else min(PAGE, limit - len(found)))
            found.extend(page.queues)
            upto = page.next
        return found

    async def _page(self, after: int, limit: int) -> Queues:
        return await self._send("GET", _with("/v1/queues", after=after, limit=limit), Queues)

    async def purge_queue(self, name: str, *, group: str | None = None, dry_run: bool = False) -> Purged:
        """Skip all that waits, is delayed or is out with a worker, in one group or in all; pushes go on.

        Its dead letters stay. With `dry_run` nothing is changed. It can't be undone, but `seek` brings back
        what the log still keeps.
        """
        form = {"group": group, "dry_run": dry_run}
        return await self._send("POST", f"{_queue(name)}/purge", Purged, form, repeats=dry_run)

    async def delete_queue(self, name: str) -> bool:
        """Remove a queue with all that is in it."""
        return (await self._send("DELETE", _queue(name), Deleted, repeats=False)).deleted

    async def create_group(self, queue: str, name: str, start: Start = "earliest") -> Group:
        """Make a group with its own view of a queue, or return the one of that name."""
        return await self._send("PUT", _group(queue, name), Group, _start(start))

    async def groups(self, queue: str) -> list[Group]:
        """The groups of a queue."""
        return await self._send("GET", f"{_queue(queue)}/groups", list[Group])

    async def seek(self, queue: str, group: str, start: Start) -> Purged:
        """Go on from another place: what comes after it is handed out (again), what is before it is skipped.

        Leases of the group are lost; its dead letters stay.
        """
        path = f"{_group(queue, group)}/seek"
        return await self._send("POST", path, Purged, _start(start), repeats=False)

    async def delete_group(self, queue: str, name: str) -> bool:
        """Remove a group."""
        return (await self._send("DELETE", _group(queue, name), Deleted, repeats=False)).deleted

    # The five verbs, and those beside them

    async def put_task(
        self,
        queue: str,
        *tasks: bytes | Message,
        partition: str = "",
        headers: dict[str, str] | None = None,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        id: bytes | None = None,
    ) -> list[int]:
        """Put tasks in a queue, all or none; their ids, in order. Durable when it returns.

        They become available at once, at `start_time` (µs, or aware), or after `delay` (seconds, by the
        server's clock; by ours with a spool). What is said here holds for tasks given as bytes; a `Message`
        says it itself. `id` (16 bytes, see `mint`) makes the call repeatable. Small puts of one queue that
        come together share a request, unless they bring an id. There are no ids as long as the tasks are in a
        spool, the server's or ours.
        """
        begins, seconds = checked_begin(start_time, delay)
        if self._outbox is not None and seconds is not None:  # so that it is the same block either way
            begins, seconds = self._clock.now() + round(seconds * _SECOND), None
        messages = addressed(tasks, partition, headers, begins)
        if id is None and seconds is None and self._merger.takes(messages):
            return (await self._merger.put(queue, messages))[1].ids()
        made = mint() if id is None else parse_id(id)
        block = Block.of(messages, id=made, created_at=self._clock.now())
        if seconds is None:
            return (await self.append(queue, block)).ids()
        check_block(block, _CEILINGS)
        path = _with(f"{_queue(queue)}/messages", delay_seconds=seconds)
        ask = Ask("POST", path, _pack(list(map(whole, messages))), id=format_id(made))
        return (await self._ask(ask, Push)).appended.ids()

    async def _push_messages(self, queue: str, messages: Sequence[Message | bytes]) -> Written:
        block = Block.of(messages, created_at=self._clock.now())
        return block.id, await self.append(queue, block)

    async def append(
        self, queue: str, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> Appended:
        """Put a whole block; where its messages are, and which of them were there before.

        `where` says whether that is the log, or a spool for now, the server's or ours. Whoever has the block
        encoded and checked gives it as `body`. One that is `replayed` was accepted at its `created_at` and
        waited since then: its transaction ids are compared with those of that time.
        """
        if self._outbox is not None and not replayed:
            return await self._outbox.push(queue, block, body)
        return await self._post(queue, block, body, replayed=replayed)

    async def _post(
        self,
        queue: str,
        block: Block,
        body: bytes | None,
        attempts_max: int | None = None,
        *,
        replayed: bool = False,
    ) -> Appended:
        if body is None:
            check_block(block, _CEILINGS)
            body = encode(block)
        # Not the time itself: the server's clock may be another.
        waited = max(0, self._clock.now() - block.created_at) / _SECOND if replayed else None
        path = f"{_queue(queue)}/messages"
        ask = Ask("POST", path, body, BLOCK, attempts_max=attempts_max, waited_seconds=waited)
        return (await self._ask(ask, Push)).appended

    async def get_task(
        self,
        queue: str | Sequence[str],
        count: int = 1,
        *,
        group: str = DEFAULT_GROUP,
        worker: str | None = None,
        wait_seconds: float = 0.0,
        visibility_seconds: float | None = None,
        partition: str | None = None,
        partitions_max: int | None = None,
    ) -> list[Task]:
        """Take up to `count` tasks; nobody else gets them until the visibility timeout.

        Waits up to `wait_seconds` for the first one. The timeout is the queue's unless it is given here. Of
        several queues, those that are named take turns in being asked first. Tasks whose answer is lost on
        its way come back after the visibility timeout, to whoever asks then.

        Ordered queues: `partition` names the only one to take from; while it is out with another worker of
        the group there is nothing. `partitions_max` is from how many they come at most; of those, as many as
        there are.
        """
        names = checked_partitions(names_of(queue), partition, partitions_max)
        form: dict[str, Any] = {"count": checked_count(count), "group": group}
        form |= {"worker": worker or self._worker, "visibility_seconds": checked_seconds(visibility_seconds)}
        form["partitions_max"] = partitions_max
        path = "/v1/take"
        if len(names) == 1:
            path = f"{_queue(names[0])}/take"
            form["partition"] = partition
        else:
            form["queues"] = names
        now = asyncio.get_running_loop().time
        until, attempt = now() + wait_seconds, 0
        while True:
            began = now()
            asked = max(0.0, min(WAIT_SECONDS, until - began))
            body = _pack({**form, "wait_seconds": asked})
            tasks = await self._ask(Ask("POST", path, body, wait_seconds=asked), list[Task])
            if tasks or now() >= until:
                return tasks
            if now() - began < asked / 2:  # a server that stops lets nobody wait
                await asyncio.sleep(pause_seconds(attempt, random()))  # noqa: S311 - it only spreads
                attempt += 1

    async def done_task(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks are done. LeaseLost names those that were no longer yours; the others are done.

        Returns where that is known: see `settle`.
        """
        return await self.settle(done=tasks)

    async def retry_task(
        self,
        tasks: Iterable[Task | Ticket | Retry],
        *,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        reason: str = "",
    ) -> Durable:
        """Tasks come back: at the time of a `Retry`, at `start_time`, after `delay`, or else at once.

        `reason` says why, where a `Retry` doesn't.
        """
        begins, seconds = checked_begin(start_time, delay)
        tickets = _retries(tasks, check_reason(reason))
        form = {"tasks": tickets, "start_time": begins, "delay_seconds": seconds}
        if tickets:
            return await self._settle("/v1/retry", form, {})
        return "log"

    async def bury(self, tasks: Iterable[Task | Ticket], reason: str) -> Durable:
        """Tasks become dead letters."""
        return await self.settle(bury=tasks, reason=reason)

    async def release(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks go back unused, and count no attempt."""
        return await self.settle(release=tasks)

    async def extend(self, tasks: Iterable[Task | Ticket], seconds: float | None = None) -> None:
        """Keep tasks for so many seconds from now (else for the visibility timeout).

        Tasks that were taken together share a lease where they come from one block, and are extended
        together.
        """
        tickets, asked = _tickets(list(tasks)), checked_seconds(seconds)
        if tickets:
            form = {"tasks": tickets, "seconds": asked}
            await self._send("POST", "/v1/extend", Extended, form)

    async def settle(
        self,
        *,
        done: Iterable[Task | Ticket] = (),
        retry: Iterable[Retry] = (),
        bury: Iterable[Task | Ticket | Burial] = (),
        release: Iterable[Task | Ticket] = (),
        reason: str = "",
        code: int = 0,
    ) -> Durable:
        """Several outcomes in one write. LeaseLost names the tasks that came too late; the others stand.

        What is buried has the reason given here; a `Burial` is rejected. `code` is kept with the outcomes:
        the status of an HTTP answer, for instance. Returns where the outcomes are: in the log, and final,
        or, while the log is away, in the spool of the server.
        """
        finished, buried = list(done), _for_one_reason(bury)
        reason = check_reason(reason)
        form: dict[str, Any] = {
            "done": _tickets(finished),
            "retry": _retries(retry),
            "bury": _tickets(buried),
            "release": _tickets(list(release)),
        }
        if any(form.values()):
            form["reason"] = reason
            if check_code(code):  # servers of before don't know it
                form["code"] = code
            return await self._settle("/v1/settle", form, endings_of(finished, buried))
        return "log"

    async def _settle(self, path: str, form: dict[str, Any], endings: dict[int, Ending]) -> Durable:
        """Settle. Leases that were lost to an attempt of our own, whose answer was lost, are not lost."""
        reply = await self._caller.ask(Ask("POST", path, _pack(form)))
        error = reply.error
        if not isinstance(error, LeaseLost) or not reply.in_doubt:
            return _value(reply, Settled).durable
        doubtful = {id: endings[id] for id in error.ids if id in endings}
        looked_at = dict(list(doubtful.items())[:LOOKED_AT_MAX])
        try:
            lost = await self._not_ended(looked_at)
        except ForebayError:
            raise unknown(list(doubtful)) from None
        unseen = [id for id in doubtful if id not in looked_at]
        if unseen:
            raise unknown([*lost, *unseen])
        raise_for_lost(lost)
        return "spool" if error.is_spooled else "log"

    async def _not_ended(self, endings: dict[int, Ending]) -> list[int]:
        """Those tasks that did not end as they were to."""
        looking, groups = asyncio.Semaphore(_LOOKS_MAX), dict[str, dict[int, str]]()

        async def is_lost(id: int, ending: Ending) -> bool:
            async with looking:
                where = await self.where(id)
                if where.queue not in groups:
                    groups[where.queue] = {g.number: g.name for g in await self.groups(where.queue)}
            return not has_ended(where, groups[where.queue].get(ending.group, ""), ending)

        try:
            async with asyncio.TaskGroup() as tasks:
                looks = {id: tasks.create_task(is_lost(id, ending)) for id, ending in endings.items()}
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [id for id, look in looks.items() if look.result()]

    # Dead letters

    async def dead_letters(
        self, queue: str, *, group: str = DEFAULT_GROUP, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """What was given up, by message id, from the first id past `after` on."""
        found: list[DeadLetter] = []
        while True:
            wanted = min(PAGE, limit - len(found))
            path = _with(f"{_queue(queue)}/dead", group=group, after=after, limit=wanted)
            page = await self._send("GET", path, list[DeadLetter])
            found.extend(page)
            if len(page) < wanted or len(found) >= limit:
                return found
            after = page[-1].message_id

    async def redrive(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Hand dead letters out again, as on their first day: those named, or all of the group.

        `reason` leaves only those whose reason contains it. With `dry_run` nothing is changed.
        """
        form = {"group": group, "reason": reason, "dry_run": dry_run}
        return await self._change_letters(f"{_queue(queue)}/dead/redrive", ids, form)

    async def purge(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Do away with dead letters: those named, or all of the group; see `redrive`."""
        form = {"group": group, "reason": reason, "dry_run": dry_run}
        return await self._change_letters(f"{_queue(queue)}/dead/purge", ids, form)

    async def undo(self, queue: str, letters: Letters, *, group: str = DEFAULT_GROUP) -> Letters:
        """Undo a redrive or a purge; returns the letters that are dead letters again.

        What was redriven and is no longer in the log alone, but ready or with a worker, stays as it is.
        """
        return await self._change_letters(f"{_queue(queue)}/dead/undo", letters.ids, {"group": group})

    async def _change_letters(self, path: str, ids: Sequence[int] | None, form: dict[str, Any]) -> Letters:
        """Change letters, so many at a time. The answer is needed to undo it, so it isn't asked twice."""
        dry_run = bool(form.get("dry_run"))
        if ids is None:
            return await self._send("POST", path, Letters, form, repeats=dry_run)
        changed: list[int] = []
        for begin in range(0, len(ids), IDS_MAX):
            some = {**form, "ids": list(ids[begin : begin + IDS_MAX])}
            changed.extend((await self._send("POST", path, Letters, some, repeats=dry_run)).ids)
        return Letters(changed, dry_run)

    # Looking

    async def get_stat(
        self, *, queue: str | None = None, after: int = 0, limit: int | None = None
    ) -> StoreStats:
        """Where the tasks of queues are.

        A task whose start time is to come is delayed. In an ordered queue those behind it in its partition
        count as ready until their turn comes, and then as delayed.
        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        pages = await self._pages("/v1/stats", StoreStats, queue, after, limit)
        found = dict(item for page in pages for item in page.queue_stats.items())
        return StoreStats(pages[0].at, found, pages[-1].next)

    async def ledger(self, *, queue: str | None = None, after: int = 0, limit: int | None = None) -> Stats:
        """The books of queues and their groups: each must add up to what was accepted.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        pages = await self._pages("/v1/ledger", Stats, queue, after, limit)
        return Stats(pages[0].at, [books for page in pages for books in page.queues], pages[-1].next)

    async def last_ledger(self, *, queue: str | None = None) -> Stats:
        """All books, or those of one queue, as the server knows them, also while the log is away.

        Then they are those of its last snapshot (`is_last_known`), with what it has spooled since.
        """
        if queue is not None:
            return await self._send("GET", _with("/v1/ledger", queue=queue, last_known="true"), Stats)
        pages = [await self._send("GET", _with("/v1/ledger", limit=STATS_PAGE, last_known="true"), Stats)]
        while (upto := pages[-1].next) is not None:
            again = _with("/v1/ledger", after=upto, limit=STATS_PAGE, last_known="true")
            pages.append(await self._send("GET", again, Stats))
        books = [books for page in pages for books in page.queues]
        return Stats(pages[0].at, books, is_last_known=any(page.is_last_known for page in pages))

    async def _pages(
        self, path: str, answer: type[Paged], queue: str | None, after: int, limit: int | None
    ) -> list[Paged]:
        """One page where it is asked for, or all of them; there is at least one."""
        if queue is not None:
            return [await self._send("GET", _with(path, queue=queue), answer)]
        if limit is not None:
            return [await self._send("GET", _with(path, after=after, limit=limit), answer)]
        pages = [await self._send("GET", _with(path, after=after, limit=STATS_PAGE), answer)]
        while (upto := pages[-1].next) is not None:
            pages.append(await self._send("GET", _with(path, after=upto, limit=STATS_PAGE), answer))
        return pages

    async def peek(self, queue: str, count: int = 10, *, group: str = DEFAULT_GROUP) -> list[Peeked]:
        """Look at what would be handed out next, without taking it."""
        path = _with(f"{_queue(queue)}/peek", count=checked_count(count), group=group)
        return await self._send("GET", path, list[Peeked])

    async def where(self, id: int) -> Whereabouts:
        """The whole path of one message: its block, and for every group where it is and what happened."""
        unpack(id)
        return await self._send("GET", f"/v1/messages/{id}", Whereabouts)

    async def flow_stats(
        self,
        *,
        queue: str | None = None,
        after: int = 0,
        limit: int | None = None,
        books: Stats | None = None,  # noqa: ARG002 - the server reads its own
    ) -> FlowStats:
        """What waits, warm and cold, by queue, group and flow. Costs by blocks, never by messages.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page. `books` are those of the same queues, where the caller
        has just read them.
        """
        pages = await self._pages("/v1/flows", FlowStats, queue, after, limit)
        flows = [flow for page in pages for flow in page.flows]
        groups = [group for page in pages for group in page.groups]
        return FlowStats(pages[0].at, flows, groups, pages[-1].next)

    async def running(self, limit: int = 100) -> list[Running]:
        """Tasks that are out with workers, longest first."""
        return await self._send("GET", _with("/v1/running", limit=limit), list[Running])

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """Rows of the SQL inbox that no block can hold, in the order of their ids, from beyond `after` on."""
        path = _with("/v1/inbox/rejected", after=after, limit=limit)
        return await self._send("GET", path, list[RejectedRow])

    # Workers and their Managers, see forebay.work.board

    async def report_work(self, report: WorkerReport) -> Instructions | None:
        """Say how a worker is, and hear what it is to do; None where nobody says anything."""
        path = f"/v1/workers/{part(report.worker)}/report"
        return (await self._send("PUT", path, Told, report)).instructions

    async def crew(self) -> Crew:
        """All workers that are there, what they were told, and who leads."""
        return await self._send("GET", "/v1/workers", Crew)

    async def direct_work(self, orders: Orders) -> Lead:
        """Lead, and tell workers what to do. Conflict, and nothing is changed, if another leads by now."""
        return await self._send("POST", "/v1/workers/instructions", Lead, orders, repeats=False)

    # Destinations, see forebay.deliver.destination_board

    async def report_destination(self, report: DestinationReport) -> DestinationStatus:
        """Say how a destination is, pause it if it is disabled, and hear whether it is paused."""
        path = f"/v1/destinations/{part(report.name)}/report"
        return await self._send("PUT", path, DestinationStatus, report)

    async def destinations(self) -> Destinations:
        """All destinations that are paused, or that a process delivers to."""
        return await self._send("GET", "/v1/destinations", Destinations)

    async def pause_destination(self, name: str, reason: str = "") -> DestinationStatus:
        """Send it nothing more until it is resumed; one that is paused already stays as it is."""
        path = f"/v1/destinations/{part(name)}/pause"
        return await self._send("POST", path, DestinationStatus, PauseForm(reason=reason))

    async def resume_destination(self, name: str) -> DestinationStatus:
        """Send it messages again."""
        return await self._send("POST", f"/v1/destinations/{part(name)}/resume", DestinationStatus)

    async def test_destination(self, name: str) -> DestinationTest:
        """Have the server send a destination of its own a test request, and hear what came of it."""
        path = f"/v1/destinations/{part(name)}/test"
        return await self._send("POST", path, DestinationTest, repeats=False)

    # Whole blocks, for programs that move many at once

    async def read(
        self, queue: str, first: int = 1, *, messages_max: int = 10_000, bytes_max: int = 64 << 20
    ) -> list[StoredBlock]:
        """Blocks as they are stored, from the one that holds sequence number `first` on."""
        path = _with(f"{_queue(queue)}/blocks", first=first, messages_max=messages_max, bytes_max=bytes_max)
        return await self._send("GET", path, list[StoredBlock])

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        """Keep blocks under a name, unseen, until `publish`. Idempotent by block id."""
        blocks = [{"queue": await self._name(append.queue), "body": append.body} for append in appends]
        if blocks:
            await self._send("POST", f"/v1/stages/{part(stage)}", Staged, {"blocks": blocks})

    async def publish(self, stage: str, ids: Sequence[bytes]) -> Receipt:
        """Append the staged blocks of these ids, in this order, at once, and forget the rest of the stage."""
        form = {"ids": [format_id(id) for id in ids]}
        return await self._send("POST", f"/v1/stages/{part(stage)}/publish", Receipt, form)

    # The spool

    def spool_status(self) -> SpoolStatus | None:
        """What waits in the spool, and why; None without one.

        Right after the start, what was there before may not be counted yet: `count_spool` waits for that.
        """
        return None if self._outbox is None else self._outbox.status()

    async def count_spool(self) -> SpoolStatus | None:
        """What waits in the spool, with all that was there before; None without one."""
        return None if self._outbox is None else await self._outbox.counted()

    async def server_spool(self) -> SpoolStatus:
        """What waits on the server's own disk for the log; NoRoute where it has no spool."""
        return await self._send("GET", "/v1/spool", SpoolStatus)

    async def drain_spool(self, seconds: float) -> bool:
        """Wait until all that was spooled is delivered, for so long at most; whether it is.

        What the server has refused for good doesn't count: `spool_status().failed` does.
        """
        return self._outbox is None or await self._outbox.drain(seconds)

    # Asking

    async def _send(
        self, method: str, path: str, answer: type[T], form: Any = None, *, repeats: bool = True
    ) -> T:
        body = None if form is None else _pack(form)
        return await self._ask(Ask(method, path, body, repeats=repeats), answer)

    async def _ask(self, ask: Ask, answer: type[T]) -> T:
        return _value(await self._caller.ask(ask), answer)

    async def _name(self, number: int) -> str:
        """The name of a queue."""
        if number not in self._names:
            self._names.update((queue.number, queue.name) for queue in await self.queues(numbers=[number]))
        if number not in self._names:
            raise UnknownQueue(f"there is no queue number {number}", hint="create it first")
        return self._names[number]


def _value(reply: Reply, answer: type[T]) -> T:
    if reply.error is not None:
        raise reply.error
    form: Any = answer  # mypy's idea of what can be hashed has no types in it
    value: T = decoded(reply.body, _decoder(form))
    return value


@cache
def _decoder(answer: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(answer)


def _queue(name: str) -> str:
    return f"/v1/queues/{part(name)}"


def _group(queue: str, name: str) -> str:
    return f"{_queue(queue)}/groups/{part(name)}"


def _start(start: Start) -> dict[str, Any]:
    return {"sequence": start.sequence} if isinstance(start, Position) else {"start": start}


def _with(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}"


def _pack(form: Any) -> bytes:
    try:
        return _encoder.encode(form)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:  # also what is no UTF-8
        raise Rejected(f"the request can't be written: {error}", hint="give plain values") from None


def _tickets(tasks: Sequence[Task | Ticket]) -> list[dict[str, Any]]:
    return [{"id": task.id, "lease": lease} for task, lease in zip(tasks, leases_of(tasks), strict=True)]


def _for_one_reason(tasks: Iterable[Task | Ticket | Burial]) -> list[Task | Ticket]:
    """The tasks, none of which has a reason of its own: a request has one place for it."""
    plain: list[Task | Ticket] = []
    for task in tasks:
        if isinstance(task, Burial):
            text = "a task is to be buried for a reason of its own, and a request has one for all"
            raise Rejected(text, hint="make a call for each reason")
        plain.append(task)
    return plain


def _retries(items: Iterable[Task | Ticket | Retry], reason: str = "") -> list[dict[str, Any]]:
    """Tickets with the times at which they come back, where they say one, and why."""
    listed = list(items)
    tickets = _tickets([item.task if isinstance(item, Retry) else item for item in listed])
    for item, ticket in zip(listed, tickets, strict=True):
        if isinstance(item, Retry):
            check_time(item.next_start_time, "the start time of a retry")
            if item.delay_seconds is None:
                ticket["start_time"] = item.next_start_time
            else:
                ticket["delay_seconds"] = checked_begin(None, item.delay_seconds)[1]
            if not item.counts:
                ticket["counts"] = False
        said = (item.reason if isinstance(item, Retry) else "") or reason
        if check_reason(said):
            ticket["reason"] = said
    return tickets


_is_a_store: type[Store] = Client
_is_a_board: type[Board] = Client
_is_a_destination_board: type[DestinationBoard] = Client
_is_a_destination_tester: type[DestinationTester] = Client
"""The type checker's word that the client has all verbs of the seam."""
