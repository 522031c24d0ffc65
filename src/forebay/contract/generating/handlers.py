"""`handlers.py` of a package: an abstract handler for each queue, and what binds it."""

from forebay.contract.generating.layout import exploded, heading, imports, indented
from forebay.contract.generating.names import QueueNames

__all__ = ["handlers_file"]


def handlers_file(queues: list[QueueNames], source: str) -> list[str]:
    """Its lines."""
    lines = [
        *heading(source, "Who handles the tasks of each queue."),
        *imports({"abc": ["ABC", "abstractmethod"], "collections.abc": ["Sequence"]}),
        "",
        *imports({
            "forebay.work.binding": ["Binding", "BindingSettings"],
            "forebay.work.context": ["Context"],
            "forebay.work.storage": ["Storage"],
            "forebay.work.typed": ["bind"],
            "forebay.work.values": ["HandlerStats"],
        }),
        "",
        *imports({".tasks": [name for queue in queues for name in (queue.format, queue.task, queue.read)]}),
    ]  # fmt: skip
    for queue in queues:
        lines += ["", "", *_handler(queue), "", "", *_bind(queue)]
    return lines


def _handler(queue: QueueNames) -> list[str]:
    parts = ["self", "ctx: Context", "storage: Storage", f"tasks: Sequence[{queue.task}]"]
    return [
        f"class {queue.handler}(ABC):",
        f'    """Handles the tasks of queue {queue.queue.name}."""',
        "",
        "    @abstractmethod",
        *exploded(f"async def {queue.handle}(", parts, ") -> HandlerStats:", 1),
        '        """Settle each task through `storage`, and say how it went."""',
    ]


def _bind(queue: QueueNames) -> list[str]:
    parts = [f"handler: {queue.handler}", "settings: BindingSettings | None = None"]
    given = [queue.format, queue.read, f"handler.{queue.handle}", "settings"]
    return [
        *exploded(f"def {queue.bind}(", parts, f") -> Binding[{queue.task}]:"),
        '    """For a worker; without settings, those of the contract."""',
        *indented(exploded("return bind(", given, ")")),
    ]
