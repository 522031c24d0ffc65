"""`client.py` of a package: a typed `put` for each queue."""

from forebay.contract.generating.layout import exploded, heading, imports, laid_out
from forebay.contract.generating.names import QueueNames

__all__ = ["client_file"]

_WHEN = [
    "delay: float | timedelta | None = None",
    "start_time: int | datetime | None = None",
    'partition: str = ""',
]
_HEADERS = "headers: Mapping[str, str] | None = None"
_PASSED = ["delay=delay", "start_time=start_time", "partition=partition"]


def client_file(queues: list[QueueNames], source: str) -> list[str]:
    """Its lines."""
    lists = ["Sequence"] if any(queue.has_lists() for queue in queues) else []
    lines = [
        *heading(source, "Puts tasks in each queue, by the names of their fields."),
        *imports({"collections.abc": ["Iterable", "Mapping", *lists], "datetime": ["datetime", "timedelta"]}),
        "",
        *imports({"forebay.store.seam": ["Store"], "forebay.work.typed": ["Putter"]}),
        "",
        *imports({".tasks": [name for queue in queues for name in (queue.format, queue.fields, queue.task)]}),
    ]
    for queue in queues:
        lines += ["", "", *_queue(queue)]
    return [*lines, "", "", *_client(queues)]


def _queue(queue: QueueNames) -> list[str]:
    return [
        f"class {queue.client}:",
        f'    """Puts tasks in queue {queue.queue.name}."""',
        "",
        "    def __init__(self, store: Store) -> None:",
        *laid_out("self._queue = Putter(", ["store", queue.format], ")", 2),
        "",
        *_put(queue),
        "",
        *_put_many(queue),
        "",
        "    async def create(self) -> None:",
        '        """Make the queue, unless it is there; putting a task does so, too."""',
        "        await self._queue.create()",
    ]


def _put(queue: QueueNames) -> list[str]:
    fields = [f"{name}: {kind.taken}" for name, kind in queue.columns]
    values = "\n".join(exploded("[", [name for name, _ in queue.columns], "]"))
    once = "transaction_id: str | None = None"
    passed = [*_PASSED, "headers=headers", "transaction_id=transaction_id"]
    return [
        *exploded("async def put(", ["self", "*", *fields, *_WHEN, _HEADERS, once], ") -> int:", 1),
        '        """Put a task; its id, or 0 while it is in a spool. Durable."""',
        *exploded("return await self._queue.put(", [values, *passed], ")", 2),
    ]


def _put_many(queue: QueueNames) -> list[str]:
    tasks = f"tasks: Iterable[{queue.task} | {queue.fields}]"
    return [
        *exploded("async def put_many(", ["self", tasks, "*", *_WHEN, _HEADERS], ") -> list[int]:", 1),
        '        """Put tasks, all or none, in one write; their ids."""',
        *exploded("return await self._queue.put_many(", ["tasks", *_PASSED, "headers=headers"], ")", 2),
    ]


def _client(queues: list[QueueNames]) -> list[str]:
    lines = [
        "class TasksClient:",
        '    """All queues of the contract, on an open store."""',
        "",
        "    def __init__(self, store: Store) -> None:",
    ]
    for queue in queues:
        lines += laid_out(f"self.{queue.attribute} = {queue.client}(", ["store"], ")", 2)
    lines += [
        "",
        "    async def create_queues(self) -> None:",
        '        """Make the queues that aren\'t there."""',
        *(f"        await self.{queue.attribute}.create()" for queue in queues),
    ]
    return lines
