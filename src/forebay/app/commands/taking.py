"""`forebay take` and `forebay peek`: tasks to work on, and a look at those that come next."""

import argparse
import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from forebay.app.commands.arguments import count, duration
from forebay.app.commands.opened import declare_store, is_served, on_store
from forebay.app.commands.output import message_fields, message_line, print_json, print_line, warn
from forebay.log.values import Queue
from forebay.model import LeaseLost, Message, Unavailable, cancel, queue_of
from forebay.store.seam import Store
from forebay.store.values import DEFAULT_GROUP, Peeked, Task
from forebay.wire.leases import lease_text

__all__ = ["declare_peek", "declare_take", "peek", "take"]


def declare_group(parser: argparse.ArgumentParser) -> None:
    """The argument that names a group."""
    parser.add_argument(
        "--group", metavar="NAME", default=DEFAULT_GROUP, help="the group (default: %(default)s)"
    )


def declare_take(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay take`."""
    declare_store(parser)
    declare_group(parser)
    parser.add_argument("queue", metavar="QUEUE", nargs="+", help="where from; several take turns")
    parser.add_argument(
        "--count", metavar="N", type=count, default=1, help="tasks at most (default: %(default)s)"
    )
    parser.add_argument("--partition", metavar="NAME", help="of an ordered queue: from this partition only")
    parser.add_argument(
        "--partitions", metavar="N", type=count,
        help="of ordered queues: from so many partitions at most (default: any number)",
    )  # fmt: skip
    parser.add_argument(
        "--wait", metavar="TIME", type=duration, default=0.0,
        help="how long to wait for the first, as 10s (default: not at all)",
    )  # fmt: skip
    parser.add_argument(
        "--visibility",
        metavar="TIME",
        type=duration,
        help="how long nobody else gets them (default: the queue's)",
    )
    parser.add_argument("--worker", metavar="NAME", help="who takes them, for people (default: this process)")
    settling = parser.add_mutually_exclusive_group()
    settling.add_argument(
        "--done", "--ack", action="store_true", help="settle them as done once they are printed"
    )
    settling.add_argument(
        "--done-with", metavar="CMD",
        help="run a shell command for each, its payload on standard input: 0 is done, else it comes back",
    )  # fmt: skip


def declare_peek(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay peek`."""
    declare_store(parser)
    declare_group(parser)
    parser.add_argument("queue", metavar="QUEUE", help="the queue to look at")
    parser.add_argument(
        "--count", metavar="N", type=count, default=10, help="messages at most (default: %(default)s)"
    )


@on_store
async def take(store: Store, arguments: argparse.Namespace) -> int:
    """Take tasks and print them, one JSON object a line, with the leases they are settled under."""
    queues: list[str] = arguments.queue
    tasks = await store.get_task(
        queues[0] if len(queues) == 1 else queues,
        arguments.count,
        group=arguments.group,
        worker=arguments.worker,
        wait_seconds=arguments.wait,
        visibility_seconds=arguments.visibility,
        partition=arguments.partition,
        partitions_max=arguments.partitions,
    )
    names = {} if len(queues) == 1 else {queue.number: queue.name for queue in await _queues_of(store, tasks)}
    if arguments.done_with is not None:
        return await _work(store, tasks, arguments.done_with, arguments.visibility)
    for task in tasks:
        print_json(_task_fields(task, names.get(task.queue_num, queues[0])))
    if arguments.done:
        await store.done_task(tasks)
    elif tasks and not is_served(arguments):
        warn("the tasks go back as this command ends; --done settles them, and a server would keep them")
    return 0


@on_store
async def peek(store: Store, arguments: argparse.Namespace) -> int:
    """Print what would be handed out next."""
    for found in await store.peek(arguments.queue, arguments.count, group=arguments.group):
        message = Message(found.data, found.partition, found.transaction_id, found.headers)
        if arguments.json:
            print_json({**_fields(found), **message_fields(message)})
        else:
            print_line(message_line(found.id, found.created_at, message))
    return 0


def _fields(found: Task | Peeked) -> dict[str, Any]:
    names = ("attempts", "created_at", "start_time", "prev_start_time")
    return {"id": str(found.id), **{name: getattr(found, name) for name in names}}


def _task_fields(task: Task, queue: str) -> dict[str, Any]:
    return {
        "queue": queue, **_fields(task), "deadline": task.deadline, "lease": lease_text(task.lease),
        **message_fields(task.message()),
    }  # fmt: skip


async def _work(store: Store, tasks: Sequence[Task], command: str, visibility: float | None) -> int:
    """Run a command for each task while all of them are kept; those left when it is interrupted go back."""
    left, failed = list(tasks), 0
    try:
        async with _keeping(store, lambda: left, visibility):
            while left:
                task = left[0]
                failed += not await _work_one(store, task, command)
                left.pop(0)
    except BaseException:
        with suppress(LeaseLost):
            await store.release(left)
        raise
    return 1 if failed else 0


async def _work_one(store: Store, task: Task, command: str) -> bool:
    """Run the command for one task and settle it; whether it is done."""
    status = await _run(command, task)
    try:
        if status == 0:
            await store.done_task([task])
        else:
            await store.retry_task([task])
    except LeaseLost as error:
        warn(f"{task.id}: {error}")
        return False
    if status != 0:
        warn(f"{task.id}: the command ended with {status}; the task comes back")
    return status == 0


async def _run(command: str, task: Task) -> int:
    environment = {
        "FOREBAY_ID": str(task.id),
        "FOREBAY_QUEUE_NUMBER": str(queue_of(task.id)),
        "FOREBAY_PARTITION": task.partition,
        "FOREBAY_ATTEMPTS": str(task.attempts),
    }
    process = await asyncio.create_subprocess_shell(command, stdin=PIPE, env={**os.environ, **environment})
    try:
        await process.communicate(task.data)
    except BaseException:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode


@asynccontextmanager
async def _keeping(
    store: Store, left: Callable[[], list[Task]], visibility: float | None
) -> AsyncIterator[None]:
    """Extend the leases of what is left for as long as it takes."""

    async def extend() -> None:
        seconds = await _visibility(store, left()) if visibility is None else visibility
        while True:
            await asyncio.sleep(seconds / 3)
            with suppress(LeaseLost, Unavailable):  # what is lost shows when it is settled
                await store.extend(left(), visibility)

    keeper = asyncio.create_task(extend()) if left() else None
    try:
        yield
    finally:
        await cancel(keeper)


async def _visibility(store: Store, tasks: Sequence[Task]) -> float:
    """The shortest visibility timeout among the queues of tasks."""
    return min(queue.settings.visibility_seconds for queue in await _queues_of(store, tasks))


async def _queues_of(store: Store, tasks: Sequence[Task]) -> list[Queue]:
    return await store.queues(numbers=sorted({task.queue_num for task in tasks}))
