"""The handlers in `tasks.py` of a package: an abstract one for each queue, and what binds it."""

from forebay.contract.generating.layout import exploded, indented
from forebay.contract.generating.names import QueueNames

__all__ = ["handler_lines"]


def handler_lines(queue: QueueNames) -> list[str]:
    """The handler of a queue."""
    return [*_handler(queue), "", "", *_bind(queue)]


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
