"""Settings of a worker's queues by their paths, out of YAML. Pure: text in, changes out.

| path | setting |
|---|---|
| `{service}/worker/queue/{worker}/max_processors` | job processors of the worker, in all |
| `{service}/worker/queue/{name}/max_processors` | job processors of a queue |
| `{service}/worker/queue/{name}/visibility_timeout` | seconds |
| `{service}/worker/queue/{name}/handle_seconds_max` | seconds |
| `{service}/worker/queue/{name}/batch_size` | tasks |
| `{service}/worker/queue/{name}/queue/{id}/max_processors` | the same, by the number of the queue |
| `{service}/worker/queue/{name}/queue/{id}/batch_size` | likewise |

`{name}` is a queue's, or that of the worker for all of its queues; what is said of a queue goes first. So the
processors of a worker are free for any of its queues, unless a queue's own path says less. A path may be
written as nested keys, as one key with slashes, or as anything in between; one that is there twice is
refused, as otherwise the last one would win, and nobody would know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from forebay.contract.nodes import is_null, keys_of, line_of
from forebay.model import ForebayError, Misconfigured
from forebay.work.settings import BindingSettings

__all__ = ["FIELDS", "NUMBERED", "Changes", "names_in", "read_changes"]

FIELDS: Final = {
    "max_processors": "max_processors",
    "visibility_timeout": "visibility_seconds",
    "handle_seconds_max": "handle_seconds_max",
    "batch_size": "batch_size",
}
"""Settings by the last part of their paths."""
NUMBERED: Final = ("max_processors", "batch_size")
"""Those that may be said of a queue by its number, too."""
_FRACTIONS: Final = frozenset(("visibility_seconds", "handle_seconds_max"))
"""Settings that needn't be whole numbers."""
_FAULTS_MAX: Final = 20
_DEPTH_MAX: Final = 20
_KEYS_MAX: Final = 100_000
"""Keys that are read, each as often as an alias names it: a small file can have billions."""


class Changes(NamedTuple):
    """What a text changes: settings by queue, and how many processors the worker has in all."""

    queues: dict[str, dict[str, Any]]
    processors: int | None = None


def read_changes(text: str, *, service: str, worker: str, queues: Mapping[str, int]) -> Changes:
    """What the text changes of a worker and of these queues (by name, with their numbers).

    Misconfigured names everything that is wrong. Names of others are passed over: several workers may share
    a file.
    """
    document = _Reader(text)
    found: dict[str, dict[str, tuple[int, Any]]] = {}
    processors: int | None = None
    leaves, faults = document.leaves(), document.faults
    for path, value, _ in leaves:
        rest = _below(path, service)
        if rest is None:
            continue
        try:
            field, number = _setting(rest[1:])
        except ValueError as error:
            faults.append(f"{'/'.join(path)}: {error}")
            continue
        if field == "max_processors" and number is None and rest[0] == worker and worker not in queues:
            processors = value
        for queue in _meant(rest[0], number, worker, queues):
            rank = (rest[0] == queue) + 2 * (number is not None)
            if rank >= found.setdefault(queue, {}).get(field, (-1, None))[0]:
                found[queue][field] = rank, value
        faults.extend(_fault(path, field, value))
    if faults:
        more = f" (and {len(faults) - _FAULTS_MAX} more)" if len(faults) > _FAULTS_MAX else ""
        raise Misconfigured("; ".join(faults[:_FAULTS_MAX]) + more)
    changed = {queue: {name: value for name, (_, value) in named.items()} for queue, named in found.items()}
    return Changes(changed, processors)


def names_in(text: str, *, service: str) -> list[str] | None:
    """The names of queues and workers that the text is about; None if it says nothing at all.

    None of them, though it says something, is what a wrong `service` looks like.
    """
    paths = [leaf.path for leaf in _Reader(text).leaves()]
    found = (_below(path, service) for path in paths)
    return sorted({rest[0] for rest in found if rest is not None}) if paths else None


def _composed(text: str) -> yaml.MappingNode | None:
    """The mapping that the text is; None if there is nothing in it."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _no_yaml(error) from None
    if root is None or is_null(root):
        return None
    if not isinstance(root, yaml.MappingNode):
        raise Misconfigured("it holds no keys", hint="write {service}: {worker: {queue: ...}}")
    return root


def _no_yaml(error: Exception) -> Misconfigured:
    return Misconfigured(f"it is no YAML: {' '.join(str(error).split())[:300]}")


class _Leaf(NamedTuple):
    """A value that is no mapping."""

    path: tuple[str, ...]
    value: Any
    line: int


class _Reader:
    """Goes through a document; `faults` are keys that are there twice, in one mapping or by their paths."""

    def __init__(self, text: str) -> None:
        self.faults: list[str] = []
        self._root = _composed(text)
        self._loader = yaml.SafeLoader("")
        self._checked: set[int] = set()
        self._keys = 0

    def leaves(self) -> list[_Leaf]:
        """All values with their paths, and each path once."""
        if self._root is None:
            return []
        self._check(self._root, ())
        try:
            found: dict[tuple[str, ...], _Leaf] = {}
            for leaf in self._below(self._root, ()):
                if found.setdefault(leaf.path, leaf) is not leaf:
                    self._twice(leaf.path, found[leaf.path].line, leaf.line)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise _no_yaml(error) from None
        return list(found.values())

    def _twice(self, path: tuple[str, ...], first: int, second: int) -> None:
        self.faults.append(f"{'/'.join(path)} is here twice, in lines {first} and {second}: keep one of them")

    def _below(self, node: yaml.MappingNode, above: tuple[str, ...]) -> Iterator[_Leaf]:
        self._keys += len(node.value)
        if len(above) > _DEPTH_MAX:
            raise Misconfigured(f"{'/'.join(above)[:100]} is nested too deep")
        if self._keys > _KEYS_MAX:
            raise Misconfigured(f"it has over {_KEYS_MAX} keys", hint="is it the right file?")
        for name, (key, value) in self._entries(node).items():
            path = (*above, *_parts(name))
            if isinstance(value, yaml.MappingNode):
                yield from self._below(value, path)
            else:
                yield _Leaf(path, self._loader.construct_object(value, deep=True), line_of(key))

    def _check(self, node: yaml.MappingNode, above: tuple[str, ...]) -> None:
        """Note keys that are in a mapping twice, before anything is merged, which may be said again."""
        if id(node) in self._checked:
            return
        self._checked.add(id(node))
        for key, name, value, first in keys_of(node):
            if name is None:
                text = f"a key in line {line_of(key)} is no word"
                raise Misconfigured(text, hint="write words with slashes between them")
            path = (*above, *_parts(name))
            if first is not None:
                self._twice(path, first, line_of(key))
            if isinstance(value, yaml.MappingNode):
                self._check(value, path)

    def _entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """What is in a mapping by its keys. What it merges comes first, and is replaced by its own."""
        self._loader.flatten_mapping(node)
        return {name: (key, value) for key, name, value, _ in keys_of(node) if name is not None}


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part)


def _below(path: tuple[str, ...], service: str) -> tuple[str, ...] | None:
    """What comes after `{service}/worker/queue`; None if that isn't where it begins."""
    head = (*_parts(service), "worker", "queue")
    return path[len(head) :] if path[: len(head)] == head and len(path) > len(head) else None


def _setting(rest: tuple[str, ...]) -> tuple[str, int | None]:
    """The setting that is meant after the name, and the number of its queue, where it has one."""
    match rest:
        case (name,) if name in FIELDS:
            return FIELDS[name], None
        case ("queue", number, name) if number.isdecimal() and name in NUMBERED:
            return FIELDS[name], int(number)
    known = ", ".join([*FIELDS, *(f"queue/{{id}}/{name}" for name in NUMBERED)])
    raise ValueError(f"there is no such setting; there are {known}")


def _meant(name: str, number: int | None, worker: str, queues: Mapping[str, int]) -> list[str]:
    """The queues that a path is about."""
    if number is not None:
        known = name == worker or name in queues
        return [queue for queue, mine in queues.items() if known and mine == number]
    if name in queues:
        return [name]
    return list(queues) if name == worker else []


def _fault(path: tuple[str, ...], field: str, value: Any) -> list[str]:
    """What is wrong with a value."""
    wanted = float if field in _FRACTIONS else int
    if isinstance(value, bool) or not isinstance(value, int | wanted):
        return [f"{'/'.join(path)}: {value!r} is no {'number' if wanted is float else 'whole number'}"]
    try:
        msgspec.structs.replace(BindingSettings(), **{field: value})
    except ForebayError as error:
        return [f"{'/'.join(path)}: {error}"]
    return []
