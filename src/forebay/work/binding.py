"""Binding: a queue, how its tasks are read, and who handles them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from forebay.store.values import Task
from forebay.work.context import Context
from forebay.work.settings import Backoff, BindingSettings
from forebay.work.storage import Storage
from forebay.work.values import HandlerStats

__all__ = ["Backoff", "Binding", "BindingSettings"]

T = TypeVar("T")
_DEFAULT: Final = BindingSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding(Generic[T]):
    """See the module.

    A task whose header `codec` or `contract` names none of `codecs` or `versions` is parked, and isn't
    decoded; None takes them as they come, and a task without the header is taken in any case.
    """

    queue: str
    decode: Callable[[Task], T]
    """Raises for a task that can't be read: it becomes a dead letter, and what was raised its reason."""
    handle: Callable[[Context, Storage, Sequence[T]], Awaitable[HandlerStats]]
    task_id: Callable[[T], int]
    number: int | None = None
    """The number that the queue must have."""
    settings: BindingSettings = _DEFAULT
    codecs: frozenset[str] | None = None
    versions: frozenset[str] | None = None

    def unfamiliar(self, task: Task) -> str | None:
        """Why a task is for another version of this program; None where it isn't."""
        headers = task.headers
        if headers is None or (self.codecs is None and self.versions is None):
            return None
        for name, known in (("codec", self.codecs), ("contract", self.versions)):
            value = headers.get(name)
            if known is not None and value is not None and value not in known:
                return f"{name} {value[:64]!r} is none of {', '.join(sorted(known))}"
        return None
