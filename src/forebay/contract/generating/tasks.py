"""`tasks.py` of a package: for each queue a struct, its bytes, and its handler.

They are in one module, since that is where the handler of a task's type is looked for.
"""

from typing import Any

from forebay.contract.generating.handlers import handler_lines
from forebay.contract.generating.layout import exploded, heading, imports, laid_out
from forebay.contract.generating.names import QueueNames
from forebay.contract.values import Backoff, WorkSettings

__all__ = ["tasks_file"]


def tasks_file(queues: list[QueueNames], version: str | None, source: str) -> list[str]:
    """Its lines."""
    settings = [_settings(queue.queue.settings) for queue in queues]
    contract = ["Format", *(["WorkSettings"] if any(settings) else [])]
    contract += ["Backoff"] if any("Backoff(" in text for text in settings) else []
    lines = [
        *heading(source, "The tasks of each queue, their bytes, and who handles them."),
        *imports({
            "abc": ["ABC", "abstractmethod"],
            "collections.abc": ["Sequence"],
            "datetime": ["datetime"],
            "typing": ["TypedDict"],
        }),
        "",
        "import msgspec",
        "",
        *imports({
            "forebay.contract": contract,
            "forebay.store.values": ["Task"],
            "forebay.work": ["Binding", "BindingSettings", "Context", "HandlerStats", "Storage"],
            "forebay.work.typed": ["bind", "previous_start"],
        }),
    ]  # fmt: skip
    for queue, said in zip(queues, settings, strict=True):
        lines += ["", *_format(queue, said, version), "", "", *_struct(queue), "", "", *_fields(queue)]
        lines += ["", "", *_serialize(queue), "", "", *_deserialize(queue), "", "", *_read(queue)]
        lines += ["", "", *handler_lines(queue), ""]
    return lines[:-1]


def _format(queue: QueueNames, settings: str, version: str | None) -> list[str]:
    fields = [f'"{field.name}": "{field.type}"' for field in queue.queue.fields]
    parts = [str(queue.queue.id), f'"{queue.queue.name}"', "\n".join(exploded("{", fields, "}"))]
    parts += [f"settings={settings}"] if settings else []
    parts += [f'version="{version}"'] if version is not None else []
    return exploded(f"{queue.format} = Format.of(", parts, ")")


def _settings(settings: WorkSettings) -> str:
    """The settings that aren't the default ones, as Python; nothing when all are."""
    said = _said(settings, WorkSettings(), skip="backoff")
    if pauses := _said(settings.backoff, Backoff()):
        said.append("backoff=" + "\n".join(exploded("Backoff(", pauses, ")")))
    return "\n".join(exploded("WorkSettings(", said, ")")) if said else ""


def _said(value: Any, default: Any, skip: str = "") -> list[str]:
    names = (name for name in value.__struct_fields__ if name != skip)
    pairs = ((name, getattr(value, name)) for name in names if getattr(value, name) != getattr(default, name))
    return [f"{name}={_literal(given)}" for name, given in pairs]


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _struct(queue: QueueNames) -> list[str]:
    bases = ["msgspec.Struct", "frozen=True", "kw_only=True", "gc=False"]
    return [
        *laid_out(f"class {queue.task}(", bases, "):"),
        f'    """A task of queue {queue.queue.name}."""',
        "",
        "    task_id: int = 0",
        "    attempts: int = 0",
        "    prev_start_time: datetime | None = None",
        *(f"    {name}: {kind.python}" for name, kind in queue.columns),
    ]


def _fields(queue: QueueNames) -> list[str]:
    return [
        f"class {queue.fields}(TypedDict):",
        f'    """The fields of a task of queue {queue.queue.name}."""',
        "",
        *(f"    {name}: {kind.taken}" for name, kind in queue.columns),
    ]


def _serialize(queue: QueueNames) -> list[str]:
    return [
        *laid_out(f"def {queue.serialize}(", [f"task: {queue.task} | {queue.fields}"], ") -> bytes:"),
        '    """The bytes of a task, or of its fields."""',
        *laid_out(f"return {queue.format}.serialize(", ["task"], ")", 1),
    ]


def _deserialize(queue: QueueNames) -> list[str]:
    return [
        *laid_out(f"def {queue.deserialize}(", ["data: bytes"], f") -> {queue.task}:"),
        '    """The task that has these bytes; it has no id yet."""',
        *laid_out(f"row = {queue.format}.decode(", ["data"], ")", 1),
        *exploded(f"return {queue.task}(", _values(queue), ")", 1),
    ]


def _read(queue: QueueNames) -> list[str]:
    known = ["task_id=task.id", "attempts=task.attempts", "prev_start_time=previous_start(task)"]
    return [
        *laid_out(f"def {queue.read}(", ["task: Task"], f") -> {queue.task}:"),
        '    """The task as it was taken."""',
        *laid_out(f"row = {queue.format}.decode(", ["task.data", "task.headers"], ")", 1),
        *exploded(f"return {queue.task}(", [*known, *_values(queue)], ")", 1),
    ]


def _values(queue: QueueNames) -> list[str]:
    return [f"{name}=row[{index}]" for index, (name, _) in enumerate(queue.columns)]
