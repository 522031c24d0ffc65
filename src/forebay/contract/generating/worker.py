"""`worker.py` of a package: a worker for all queues, one handler for each.

The arguments are called as the queues are, so the body names nothing else that a queue could be called.
"""

from forebay.contract.generating.layout import exploded, heading, imports, laid_out
from forebay.contract.generating.names import QueueNames

__all__ = ["worker_file"]


def worker_file(queues: list[QueueNames], source: str) -> list[str]:
    """Its lines."""
    parts = [
        "store: Store | str | None",
        "*",
        *(f"{queue.attribute}: {queue.handler}" for queue in queues),
        "**options: Any",
    ]
    bound = ["\n".join(laid_out(f"_tasks.{queue.bind}(", [queue.attribute], ")")) for queue in queues]
    given = ["store", "\n".join(exploded("[", bound, "]")), "**options"]
    return [
        *heading(source, "A worker for all queues."),
        *imports({"typing": ["Any"]}),
        "",
        *imports({
            "forebay.store.seam": ["Store"],
            "forebay.work": ["Worker"],
        }),
        "",
        "from . import tasks as _tasks",
        *imports({".tasks": [queue.handler for queue in queues]}),
        "",
        "",
        *exploded("def make_worker(", parts, ") -> Worker:"),
        '    """A worker with a handler for each queue; options as for `Worker`."""',
        *exploded("return Worker(", given, ")", 1),
    ]  # fmt: skip
