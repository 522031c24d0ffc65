"""What changed between two contracts, and whether tasks in flight survive it.

Tasks are read by the place of their fields, so a contract grows at the end: a queue, a field after the last.
Whatever else changes the fields of a queue would have tasks that wait be read as something else, and breaks.
"""

from collections.abc import Iterator

import msgspec

from forebay.contract.values import Contract, Field, QueueContract, WorkSettings
from forebay.contract.versions import is_newer

__all__ = ["Change", "compare"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference."""

    message: str
    breaks: bool
    """Whether tasks that were put by the old contract would be misread, or lost to their handler."""
    queue: str | None = None
    field: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


_NEW_QUEUE = "make a new queue for it, and keep this one until it is empty"


def compare(old: Contract, new: Contract) -> list[Change]:
    """All differences, queue by queue in the order of the old contract, then what is new."""
    changes = list(_versions(old, new))
    by_name = {queue.name: queue for queue in new.queues}
    by_id = {queue.id: queue for queue in new.queues}
    for queue in old.queues:
        now = by_name.get(queue.name)
        changes += _gone(queue, by_id.get(queue.id)) if now is None else _queue(queue, now)
    known = {queue.name for queue in old.queues}
    for queue in new.queues:
        if queue.name not in known:
            changes.append(_fine(f"queue '{queue.name}' is new", queue.name))
    return changes


def _versions(old: Contract, new: Contract) -> Iterator[Change]:
    if old.version == new.version:
        return
    if new.version is None:
        yield _fine(f"the version, {old.version}, is gone")
    elif is_newer(old.version, new.version):
        text = f"the version goes back from {old.version} to {new.version}"
        yield Change(message=text, breaks=True, hint="tasks of a newer version aren't read by an older one")
    else:
        yield _fine(f"the version is {new.version}, after {old.version or 'none'}")


def _gone(old: QueueContract, heir: QueueContract | None) -> Iterator[Change]:
    text = f"queue '{old.name}' is gone"
    if heir is not None:
        text = f"queue '{old.name}' is gone; its id, {old.id}, has queue '{heir.name}' now"
    yield _broken(text, old.name, hint="keep it until it is empty")


def _queue(old: QueueContract, new: QueueContract) -> Iterator[Change]:
    if old.id != new.id:
        text = f"queue '{old.name}': the id was {old.id}, and is {new.id}"
        yield _broken(text, old.name, hint="a queue keeps its id")
    yield from _fields(old, new)
    yield from _settings(old.name, old.settings, new.settings)


def _fields(old: QueueContract, new: QueueContract) -> Iterator[Change]:
    places = {field.name: index for index, field in enumerate(new.fields)}
    kept = [field for field in old.fields if field.name in places]
    for index, field in enumerate(old.fields):
        if field.name not in places:
            yield _removed(old.name, field, index, new.fields)
        elif new.fields[places[field.name]].type != field.type:
            now = new.fields[places[field.name]].type
            text = f"queue '{old.name}': field '{field.name}' was {field.type}, and is {now}"
            yield _broken(text, old.name, field.name, "append a field of the new type")
    if kept != sorted(kept, key=lambda field: places[field.name]):
        names = [field.name for field in kept]
        before, after = ", ".join(names), ", ".join(sorted(names, key=places.__getitem__))
        text = f"queue '{old.name}': the order of the fields was {before}, and is {after}"
        yield _broken(text, old.name, hint="keep the order")
    yield from _added(old, new)


def _removed(queue: str, field: Field, index: int, fields: tuple[Field, ...]) -> Change:
    text = f"queue '{queue}': field '{field.name}' is gone"
    if index < len(fields) and fields[index].type == field.type:
        text += f", and '{fields[index].name}' is in its place"
    return _broken(text, queue, field.name, "keep it, in its place, also when nobody reads it")


def _added(old: QueueContract, new: QueueContract) -> Iterator[Change]:
    known = {field.name for field in old.fields}
    last = max((index for index, field in enumerate(new.fields) if field.name in known), default=-1)
    for index, field in enumerate(new.fields):
        if field.name in known:
            continue
        if index < max(last, len(old.fields)):
            text = f"queue '{old.name}': field '{field.name}' is new, and not at the end"
            yield _broken(text, old.name, field.name, "append it after the last field")
        else:
            text = f"queue '{old.name}': field '{field.name}' ({field.type}) is appended"
            yield _fine(text, old.name, field.name)


def _settings(queue: str, old: WorkSettings, new: WorkSettings) -> Iterator[Change]:
    for name in WorkSettings.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        text = f"queue '{queue}': {name} was {_shown(before)}, and is {_shown(after)}"
        if name == "codec":
            yield _broken(text, queue, hint="tasks whose headers name no codec would be misread")
        elif name == "ordered":
            yield _broken(text, queue, hint=f"it is fixed when a queue is made; {_NEW_QUEUE}")
        else:
            yield _fine(text, queue)


def _shown(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        said = {name: getattr(value, name) for name in value.__struct_fields__}
        return (
            ", ".join(f"{name} {_shown(part)}" for name, part in said.items() if part is not None)
            or "default"
        )
    if isinstance(value, bool):
        return str(value).lower()
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _fine(message: str, queue: str | None = None, field: str | None = None) -> Change:
    return Change(message=message, breaks=False, queue=queue, field=field)


def _broken(message: str, queue: str, field: str | None = None, hint: str | None = None) -> Change:
    return Change(message=message, breaks=True, queue=queue, field=field, hint=hint)
