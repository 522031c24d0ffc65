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
    """See the module."""

    queue: str
    decode: Callable[[Task], T]
    """Raises for a task that can't be read: `UnknownFormat` leaves it for a worker that can, anything else
    makes it a dead letter, with what was raised as the reason."""
    handle: Callable[[Context, Storage, Sequence[T]], Awaitable[HandlerStats]]
    task_id: Callable[[T], int]
    number: int | None = None
    """The number that the queue must have."""
    settings: BindingSettings = _DEFAULT
