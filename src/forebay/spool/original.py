"""Names and fields of the original server (Queen MQ) and ours: one mapping, both ways.

The original's files, our files for its readers, and the routes for its clients all use it, so a message is in
the same queue and partition whichever way it came.

Invariants: two names of the original are never one of ours. A name that we would refuse (empty, with spaces
at its ends, with control characters) is kept as `~` and its percent-encoded text. The original's partition
`Default` is our default partition. Its trace id, namespace and task are headers of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from forebay.model import Headers, Rejected
from forebay.model.limits import check_partition, check_queue_name

DEFAULT_PARTITION: Final = "Default"
TRACE: Final = "queen-trace-id"
NAMESPACE: Final = "queen-namespace"
TASK: Final = "queen-task"
MADE: Final = "queen-made"
"""Marks a message of the original, so that a replay that has to make its queue makes one of that kind."""
MARK: Final = "~"
_REMEMBERED: Final = 10_000


class Address(NamedTuple):
    """A queue and a partition: as the original calls them, or as we do."""

    queue: str
    partition: str


def queue_name(text: str) -> str:
    """The name under which we keep a queue; Rejected when it is too long."""
    return check_queue_name(kept_name(text, check_queue_name))


def partition_name(text: str | None) -> str:
    """The partition that we keep messages in; Rejected when its name is too long."""
    if text is None or text in ("", DEFAULT_PARTITION):
        return ""
    return check_partition(kept_name(text, check_partition))


def shown_queue(name: str) -> str:
    """The name of a queue in the original."""
    return plain_name(name)


def shown_partition(name: str) -> str:
    """The name of a partition in the original."""
    return plain_name(name) if name else DEFAULT_PARTITION


@lru_cache(_REMEMBERED)
def kept(shown: Address) -> Address:
    """Our names for the original's."""
    return Address(queue_name(shown.queue), partition_name(shown.partition))


def shown(kept_as: Address) -> Address:
    """The original's names for ours, as they are where the original couldn't tell them apart from others."""
    found = Address(shown_queue(kept_as.queue), shown_partition(kept_as.partition))
    try:
        "".join(found).encode()  # a lone surrogate can't stand in a line
        return found if kept(found) == kept_as else kept_as
    except (Rejected, UnicodeEncodeError):
        return kept_as


def headers_in(trace_id: str | None, namespace: str | None, task: str | None) -> dict[str, str]:
    """What is kept of a line of the original in the headers of its message."""
    found = {TRACE: trace_id, NAMESPACE: namespace, TASK: task, MADE: "1"}
    return {key: value for key, value in found.items() if value}


def fields_out(headers: Headers) -> dict[str, str]:
    """What a line says of a message beside its address, for readers of the original's lines."""
    names = {"trace_id": TRACE, "namespace": NAMESPACE, "task": TASK}
    return {key: headers.get(header, "") for key, header in names.items()}


def kept_name(text: str, check: Callable[[str], str]) -> str:
    """A name as it is if `check` lets it pass, and escaped if not."""
    try:
        if not text.startswith(MARK) and check(text) == text:
            return text
    except Rejected:
        pass
    return MARK + quote(text, safe="", errors="surrogatepass")


def plain_name(name: str) -> str:
    """A name without its escapes; one that isn't escaped text, but begins like it, as it is."""
    try:
        return unquote(name[1:], errors="surrogatepass") if name.startswith(MARK) else name
    except UnicodeDecodeError:
        return name
