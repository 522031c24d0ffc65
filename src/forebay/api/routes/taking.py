"""Taking tasks, with waiting, and settling them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route, Run
from forebay.api.waiting import waited
from forebay.log.values import Durable
from forebay.model import ForebayError, Rejected, Unavailable, parse_message_ids, queue_of
from forebay.model.limits import check_text
from forebay.store.values import Retry, Task, Ticket
from forebay.warm.values import Lease
from forebay.wire.forms import (
    BuryForm,
    DoneForm,
    Extended,
    ExtendForm,
    Form,
    LeaseSeconds,
    ReleaseForm,
    RetriesForm,
    RetryForm,
    Seconds,
    Settled,
    SettleForm,
    TakeForm,
    Tasks,
    TicketForm,
    task_forms,
)
from forebay.wire.leases import check_lease, parse_lease

WORKER_BYTES_MAX: Final = 255
_SECOND: Final = 1_000_000


class TakeOneForm(Form, kw_only=True):
    """What to take from the queue in the path."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    group: str = "workers"
    worker: Annotated[str, Meta(max_length=255)] | None = None
    wait_seconds: Seconds = 0.0
    visibility_seconds: LeaseSeconds | None = None
    partition: str | None = None
    """Of an ordered queue: from this partition only."""
    partitions_max: Annotated[int, Meta(ge=1)] | None = None
    """Of an ordered queue: from how many partitions at most."""


async def take(call: Call) -> Answer:
    """Take tasks from several queues."""
    form: TakeForm = await call.form()
    for queue in form.queues:
        call.allow(queue)
    return await _take(call, form.queues, form)


async def take_one(call: Call) -> Answer:
    """Take tasks from one queue."""
    form: TakeOneForm = await call.form()
    return await _take(call, call.params["queue"], form)


async def _take(call: Call, queues: str | Sequence[str], form: TakeForm | TakeOneForm) -> Answer:
    context = call.context
    limits = context.settings.limits
    if form.count > limits.take_count_max:
        text = f"{form.count} tasks are more than may be taken at once"
        raise Rejected(text, hint=f"ask for up to {limits.take_count_max}")
    if form.worker is not None:
        check_text(form.worker, "worker", WORKER_BYTES_MAX)
    call.check_room()
    await context.learn_names([queues] if isinstance(queues, str) else queues)
    wait = 0.0 if context.draining.is_set() else min(form.wait_seconds, limits.wait_seconds_max)
    taking = context.store.get_task(
        queues if isinstance(queues, str) or len(queues) > 1 else queues[0],
        form.count,
        group=form.group,
        worker=form.worker or _client(call),
        wait_seconds=wait,
        visibility_seconds=form.visibility_seconds,
        partition=form.partition if isinstance(form, TakeOneForm) else None,
        partitions_max=form.partitions_max,
    )
    tasks = await (waited(call, asyncio.create_task(taking), wait) if wait > 0 else taking)
    await _claim_room(call, tasks)
    context.counters.messages["taken"] += len(tasks)
    names = await context.names(*{task.queue_num for task in tasks}) if tasks else {}
    return Answer(tasks, lambda tasks: Tasks(tasks=task_forms(tasks, names)))


async def _claim_room(call: Call, tasks: Sequence[Task]) -> None:
    """Count tasks as an answer to be, or release them: those that waited may get theirs all at once."""
    try:
        call.claim_room(sum(len(task.data) for task in tasks))
    except Unavailable:
        with suppress(ForebayError):  # then they come back when their leases end
            await call.context.store.release(tasks)
        raise


def _client(call: Call) -> str:
    """Who takes, when he doesn't say."""
    client = call.scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "unknown"


# Settling


async def done(call: Call) -> Answer:
    """Tasks are done."""
    form: DoneForm = await call.form()
    tickets = await _tickets(call, form.tasks)
    return _settled(call, "done", len(tickets), await call.context.store.done_task(tickets))


async def retry(call: Call) -> Answer:
    """Tasks come back."""
    form: RetriesForm = await call.form()
    _check_one(form.start_time, form.delay_seconds, "$")
    retries = await _retries(call, form.tasks, form.start_time, form.delay_seconds, form.reason)
    return _settled(call, "retried", len(retries), await call.context.store.settle(retry=retries))


async def bury(call: Call) -> Answer:
    """Tasks become dead letters."""
    form: BuryForm = await call.form()
    tickets = await _tickets(call, form.tasks)
    durable = await call.context.store.bury(tickets, _reason(form.reason))
    return _settled(call, "buried", len(tickets), durable)


async def release(call: Call) -> Answer:
    """Tasks go back unused."""
    form: ReleaseForm = await call.form()
    tickets = await _tickets(call, form.tasks)
    return _settled(call, "released", len(tickets), await call.context.store.release(tickets))


async def extend(call: Call) -> Answer:
    """Tasks are kept for longer."""
    form: ExtendForm = await call.form()
    tickets = await _tickets(call, form.tasks)
    await call.context.store.extend(tickets, form.seconds)
    call.context.counters.messages["extended"] += len(tickets)
    return Answer(Extended(settled=len(tickets)))


async def settle(call: Call) -> Answer:
    """Several outcomes in one write."""
    form: SettleForm = await call.form()
    finished, buried = await _tickets(call, form.done), await _tickets(call, form.bury)
    released = await _tickets(call, form.release)
    retried = await _retries(call, form.retry)
    durable = await call.context.store.settle(
        done=finished,
        retry=retried,
        bury=buried,
        release=released,
        reason=_reason(form.reason),
        code=form.code,
    )
    counts = {
        "done": len(finished), "retried": len(retried), "buried": len(buried), "released": len(released),
    }  # fmt: skip
    call.context.counters.messages.update(counts)
    return Answer(Settled(settled=sum(counts.values()), durable=durable))


def _reason(text: str) -> str:
    """A reason: any text, over several lines, but without what databases can't keep."""
    if "\0" in text:
        raise Rejected("there is a NUL in the reason - at `$.reason`", hint="remove it")
    return text


def _settled(call: Call, what: str, count: int, durable: Durable) -> Answer:
    call.context.counters.messages[what] += count
    return Answer(Settled(settled=count, durable=durable))


async def _tickets(call: Call, forms: Sequence[TicketForm]) -> list[Ticket]:
    """Tickets out of their forms; whoever may not take from a queue may not settle there."""
    leases: dict[str | Lease, Lease] = {}
    for given in dict.fromkeys(form.lease for form in forms):
        leases[given] = check_lease(given) if isinstance(given, Lease) else parse_lease(given)
    ids = parse_message_ids([form.id for form in forms])
    tickets = [Ticket(id, leases[form.lease]) for id, form in zip(ids, forms, strict=True)]
    if call.key.queues:
        numbers = {queue_of(lease.first) for lease in leases.values()}
        names = await call.context.names(*numbers)
        for number in numbers:
            call.allow(names.get(number, ""))
    return tickets


async def _retries(
    call: Call,
    forms: Sequence[RetryForm],
    start_time: int | None = None,
    delay_seconds: float | None = None,
    reason: str = "",
) -> list[Retry]:
    """Retries, with a time or a delay of their own, or else the ones given here, or else at once."""
    tickets = await _tickets(call, forms)
    now = call.context.clock.now()
    retries: list[Retry] = []
    for number, (ticket, form) in enumerate(zip(tickets, forms, strict=True)):
        at, after = form.start_time, form.delay_seconds
        _check_one(at, after, f"$.tasks[{number}]")
        if at is None and after is None:
            at, after = start_time, delay_seconds
        said = _reason(form.reason or reason)
        retries.append(Retry(ticket, now if at is None else at, form.counts, said, after))
    return retries


def _check_one(start_time: int | None, delay_seconds: float | None, path: str) -> None:
    if start_time is not None and delay_seconds is not None:
        raise Rejected(f"both start_time and delay_seconds are given - at `{path}`", hint="give one of them")


def _settling(path: str, run: Run, summary: str, body: type[Form], answer: type[Form] = Settled) -> Route:
    return Route(
        "POST",
        path,
        run,
        summary,
        {200: answer},
        scope="take",
        checks_queues=True,
        body=body,
        problems=(404, 409, 413, 415),
        tag="Tasks",
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/v1/take",
        take,
        "Take tasks from several queues; waits for the first one",
        {200: Tasks},
        scope="take",
        checks_queues=True,
        body=TakeForm,
        problems=(404, 413, 415),
        tag="Tasks",
        waits=True,
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/take",
        take_one,
        "Take tasks from one queue; waits for the first one",
        {200: Tasks},
        scope="take",
        body=TakeOneForm,
        body_is_optional=True,
        problems=(404, 413, 415),
        tag="Tasks",
        waits=True,
    ),
    _settling("/v1/done", done, "Tasks are done", DoneForm),
    _settling("/v1/retry", retry, "Tasks come back, at once or later", RetriesForm),
    _settling("/v1/bury", bury, "Tasks become dead letters", BuryForm),
    _settling("/v1/release", release, "Tasks go back unused; no attempt is counted", ReleaseForm),
    _settling("/v1/extend", extend, "Keep tasks for longer", ExtendForm, Extended),
    _settling("/v1/settle", settle, "Several outcomes in one write", SettleForm),
)
