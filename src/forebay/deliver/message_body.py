"""Requests out of messages: one as it is, or several as a JSON array or as lines of JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from forebay.deliver.settings import DestinationSettings
from forebay.deliver.values import Headers, Request
from forebay.model import Rejected
from forebay.store.values import Task

__all__ = ["batches_of", "make_request", "request_id"]

_PASSED_ON: Final = ("content-type", "content-encoding", "traceparent", "tracestate")
"""Headers of a message that its request has, too."""
_TYPES: Final = {
    "message": "application/octet-stream",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
}


def batches_of(tasks: Sequence[Task], settings: DestinationSettings) -> list[list[Task]]:
    """Tasks in their order, as many to a request as the settings allow."""
    if settings.body == "message":
        return [[task] for task in tasks]
    found: list[list[Task]] = []
    size = 0
    for task in tasks:
        size += len(task.data)
        if not found or len(found[-1]) >= settings.batch_messages_max or size > settings.batch_bytes_max:
            found.append([])
            size = len(task.data)
        found[-1].append(task)
    return found


def make_request(tasks: Sequence[Task], settings: DestinationSettings) -> Request:
    """The request for a batch; Rejected when a message of a JSON body isn't JSON."""
    method, target = settings.method.encode("ascii"), settings.address.target
    if settings.body == "message":
        (task,) = tasks
        return Request(method, target, _headers(task, settings), task.data)
    items = [_json(task) for task in tasks]
    if settings.body == "json":
        body = b"[" + b",".join(items) + b"]"
    else:
        body = b"".join(item + b"\n" for item in items)
    kind = settings.content_type or _TYPES[settings.body]
    return Request(method, target, ((b"content-type", kind.encode("ascii")),), body)


def request_id(tasks: Sequence[Task]) -> str:
    """An id that is the same each time that the same messages are sent together."""
    if len(tasks) == 1:
        return f"msg_{tasks[0].id}"
    ids = b"".join(task.id.to_bytes(8, "big", signed=True) for task in tasks)
    return f"batch_{blake2b(ids, digest_size=16).hexdigest()}"


def _headers(task: Task, settings: DestinationSettings) -> Headers:
    given = {name.lower(): value for name, value in (task.headers or {}).items()}
    if "content-type" not in given:
        given["content-type"] = settings.content_type or _TYPES["message"]
    return tuple(
        (name.encode("ascii"), given[name].encode("latin-1", "replace"))
        for name in _PASSED_ON
        if name in given
    )


def _json(task: Task) -> bytes:
    """A payload as one line of JSON, its numbers untouched."""
    try:
        task.data.decode()  # the decoder below doesn't look into strings
        msgspec.json.decode(task.data, type=msgspec.Raw)
        is_one_line = b"\n" not in task.data and b"\r" not in task.data
        return task.data if is_one_line else msgspec.json.format(task.data, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(
            f"message {task.id} isn't JSON: {error}", hint="deliver it with body: message"
        ) from None
