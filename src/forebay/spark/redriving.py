"""Dead letters by a DataFrame: one looks at them with SQL, and hands those out again that it selects.

The DataFrame has the columns `queue`, `group` and `message_id` of the table `dead`; others don't matter. Each
change is durable by the page of 10,000 letters; a call that failed half way is repeated as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from forebay.log.values import Group
from forebay.model import Rejected, UnknownGroup, UnknownQueue
from forebay.spark.logs import Face, Opener, face

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("queue", "group", "message_id")
PAGE: Final = 10_000

_Change = Callable[[Group, list[int]], Coroutine[Any, Any, list[int]]]


def redrive(letters: DataFrame, url: str, opener: Opener, **credentials: str) -> int:
    """Hand these dead letters out again, from their first attempt; how many there were to hand out."""
    opened = face(opener, url, **credentials)
    return _change(letters, opened, opened.log.redrive)


def purge(letters: DataFrame, url: str, opener: Opener, **credentials: str) -> int:
    """Take these dead letters off the list; how many there were."""
    opened = face(opener, url, **credentials)
    return _change(letters, opened, opened.log.purge)


def _change(letters: DataFrame, face: Face, change: _Change) -> int:
    if missing := [name for name in COLUMNS if name not in letters.columns]:
        text = f"the DataFrame has no column {missing[0]!r}"
        raise Rejected(text, hint="select from format('forebay') with option('table', 'dead')")
    groups: dict[tuple[str, str], Group] = {}
    changed = 0
    for place, ids in _pages(letters):
        group = groups.get(place)
        if group is None:
            group = groups[place] = _group(face, *place)
        changed += len(face(change(group, ids)))
    return changed


def _pages(letters: DataFrame) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Letters by queue and group, in pages; the driver holds one page for each."""
    pages: dict[tuple[str, str], set[int]] = {}
    for row in letters.select(*COLUMNS).toLocalIterator():
        place = (row["queue"], row["group"])
        page = pages.setdefault(place, set())
        page.add(row["message_id"])
        if len(page) == PAGE:
            yield place, sorted(pages.pop(place))
    yield from ((place, sorted(page)) for place, page in pages.items())


def _group(face: Face, queue: str, name: str) -> Group:
    found = next((each for each in face(face.log.queues()) if each.name == queue), None)
    if found is None:
        raise UnknownQueue(f"there is no queue {queue!r}", hint="read the dead letters again")
    group = next((each for each in face(face.log.groups(found)) if each.name == name), None)
    if group is None:
        raise UnknownGroup(f"queue {queue!r} has no group {name!r}", hint="read the dead letters again")
    return group
