"""Workers: handlers for the tasks of queues, what calls them, and the Manager that shares them."""

from forebay.work.binding import Binding
from forebay.work.context import Context
from forebay.work.handlers import handler
from forebay.work.managing import Manager, ManagerSettings
from forebay.work.settings import Backoff, BindingSettings, WorkerSettings
from forebay.work.storage import Storage
from forebay.work.values import (
    Bury,
    Done,
    HandlerStats,
    Outcome,
    QueueReport,
    RetryAfter,
    RetryInfo,
    WorkerReport,
)
from forebay.work.worker import Worker

__all__ = [
    "Backoff",
    "Binding",
    "BindingSettings",
    "Bury",
    "Context",
    "Done",
    "HandlerStats",
    "Manager",
    "ManagerSettings",
    "Outcome",
    "QueueReport",
    "RetryAfter",
    "RetryInfo",
    "Storage",
    "Worker",
    "WorkerReport",
    "WorkerSettings",
    "handler",
]
