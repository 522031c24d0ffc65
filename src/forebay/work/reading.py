"""How the tasks of the short way are read: by the annotation of the function that takes them.

| annotation | the task as |
|---|---|
| none, `bytes` | its payload |
| `str` | its payload, which is UTF-8 |
| `forebay.Task` | it is, with its lease |
| a task of a generated package | its fields; number and settings are those of the contract |
| anything else that msgspec can decode: `dict`, a struct … | JSON |
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, get_args, get_origin

import msgspec
import msgspec.inspect

from forebay.contract.naming import python_name
from forebay.model import Misconfigured
from forebay.store.values import Task
from forebay.work.binding import Binding
from forebay.work.context import Context

__all__ = ["Shape", "generated", "reader", "shape_of"]

_JSON: Final = (dict, list, str, int, float, bool, type(None))
_KINDS: Final = "annotate it with bytes, str, forebay.Task, a struct of msgspec, a dataclass, or a plain type"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function takes."""

    kind: Any
    """The annotation of one task; None if there is none."""
    takes_context: bool


def shape_of(function: Callable[..., Any], *, batch: bool) -> Shape:
    """What a function takes; Misconfigured if it can't be a handler."""
    name = getattr(function, "__name__", repr(function))
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        text = f"the annotations of handler {name} can't be read: {error}"
        raise Misconfigured(text, hint="use types that its module knows") from None
    parameters = list(inspect.signature(function).parameters)
    if parameters[:1] == ["self"]:
        text = f"handler {name} takes self, and nobody would give it one"
        raise Misconfigured(text, hint='decorate a function, or call handler("queue") with a bound method')
    takes_context = bool(parameters) and hints.get(parameters[0]) is Context
    rest = parameters[takes_context:]
    if len(rest) != 1:
        what = "a sequence of tasks" if batch else "one task"
        raise Misconfigured(f"handler {name} takes {len(rest)} arguments", hint=f"let it take {what}")
    kind = hints.get(rest[0])
    if not batch or kind is None:
        return Shape(kind, takes_context)
    origin = get_origin(kind) or kind
    if not (isinstance(origin, type) and issubclass(origin, Sequence)) or origin in (str, bytes):
        raise Misconfigured(f"handler {name} takes no sequence", hint="annotate it as Sequence[...]")
    return Shape(next(iter(get_args(kind)), None), takes_context)


def generated(kind: Any, queue: str) -> Binding[Any] | None:
    """The binding of a queue in the generated package that a type comes from; None if it comes from none.

    Misconfigured if it is the type of another queue.
    """
    is_task = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if not is_task or "task_id" not in kind.__struct_fields__:
        return None
    module, name = vars(sys.modules[kind.__module__]), python_name(queue)
    if not any(known.startswith("bind_") for known in module):
        return None
    bind = module.get(f"bind_{name}")
    made = None if bind is None else bind(SimpleNamespace(**{f"handle_{name}": None}))
    if not isinstance(made, Binding) or typing.get_type_hints(made.decode).get("return") is not kind:
        text = f"{kind.__name__} is no task of queue {queue!r}"
        raise Misconfigured(text, hint="annotate the handler with the type of its own queue")
    return made


def reader(kind: Any) -> Callable[[Task], Any]:
    """How tasks are read for a function that wants this type."""
    if kind is None or kind is bytes:
        return lambda task: task.data
    if kind is Task:
        return lambda task: task
    if kind is str:
        return lambda task: task.data.decode()
    try:
        odd = _unreadable(msgspec.inspect.type_info(kind), set())
        decoder = msgspec.json.Decoder(kind)
    except TypeError as error:
        raise Misconfigured(f"tasks can't be read as {_shown(kind)}: {error}", hint=_KINDS) from None
    if odd is not None:
        text = f"tasks can't be read as {_shown(kind)}"
        text += "" if odd is kind else f", which has {_shown(odd)} in it"
        raise Misconfigured(text, hint=_KINDS)
    return lambda task: decoder.decode(task.data)


def _unreadable(info: object, seen: set[int]) -> type | None:
    """A class in a type that JSON is never read as: each task would be a dead letter."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if any(issubclass(known, info.cls) for known in _JSON) else info.cls
    if isinstance(info, tuple):
        parts: Iterable[object] = info
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        parts = (getattr(info, name) for name in info.__struct_fields__)
    else:
        return None
    return next((odd for part in parts if (odd := _unreadable(part, seen)) is not None), None)


def _shown(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
