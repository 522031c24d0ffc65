"""Names as Queen's clients write them, and as we keep them.

Invariants: both ways fit: what one writes, the other reads back; two names of Queen's are never one of ours.
A name that we would refuse (empty, with spaces at its ends, with control characters) is kept as `~` and its
percent-encoded text. Who names no group is in our default group, and its partition `Default` is our default
partition.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from forebay.model import Rejected
from forebay.model.limits import check_group_name, check_partition, check_queue_name
from forebay.store.values import DEFAULT_GROUP

QUEUE_MODE: Final = "__QUEUE_MODE__"
"""What Queen calls the group of those who name none."""
DEFAULT_PARTITION: Final = "Default"
_MARK: Final = "~"


def queue_name(text: str) -> str:
    """The name under which we keep a queue; Rejected when it is too long."""
    return check_queue_name(text if _is_queue_name(text) else _escaped(text))


def shown_queue(name: str) -> str:
    """The name of a queue as its clients know it."""
    return _plain(name)


def group_name(text: str | None) -> str:
    """The name under which we keep a group."""
    if text is None or text in ("", QUEUE_MODE):
        return DEFAULT_GROUP
    is_plain = text != DEFAULT_GROUP and _is_group_name(text)
    return check_group_name(text if is_plain else _escaped(text))


def shown_group(name: str) -> str:
    """The name of a group as its clients know it."""
    return QUEUE_MODE if name == DEFAULT_GROUP else _plain(name)


def partition_name(text: str | None) -> str:
    """The partition that we keep messages in."""
    if text is None or text in ("", DEFAULT_PARTITION):
        return ""
    return check_partition(text if _is_partition(text) else _escaped(text))


def shown_partition(name: str) -> str:
    """The name of a partition as its clients know it."""
    return _plain(name) if name else DEFAULT_PARTITION


def _escaped(text: str) -> str:
    return _MARK + quote(text, safe="", errors="surrogatepass")


def _plain(name: str) -> str:
    return unquote(name[1:], errors="surrogatepass") if name.startswith(_MARK) else name


def _is_queue_name(text: str) -> bool:
    try:
        return not text.startswith(_MARK) and check_queue_name(text) == text
    except Rejected:
        return False


def _is_group_name(text: str) -> bool:
    try:
        return not text.startswith(_MARK) and check_group_name(text) == text
    except Rejected:
        return False


def _is_partition(text: str) -> bool:
    try:
        return not text.startswith(_MARK) and check_partition(text) == text
    except Rejected:
        return False
