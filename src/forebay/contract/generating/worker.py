"""`worker.py` of a package: a worker for all queues, one handler for each."""

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
    bound = ["\n".join(laid_out(f"{queue.bind}(", [queue.attribute], ")")) for queue in queues]
    return [
        *heading(source, "A worker for all queues."),
        *imports({"typing": ["Any"]}),
        "",
        *imports({
            "forebay.store.seam": ["Store"],
            "forebay.work": ["Binding", "Worker"],
        }),
        "",
        *imports({".tasks": [name for queue in queues for name in (queue.handler, queue.bind)]}),
        "",
        "",
        *exploded("def make_worker(", parts, ") -> Worker:"),
        '    """A worker with a handler for each queue; options as for `Worker`."""',
        *exploded("bindings: list[Binding[Any]] = [", bound, "]", 1),
        "    return Worker(store, bindings, **options)",
    ]  # fmt: skip
