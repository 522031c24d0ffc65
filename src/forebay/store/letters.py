"""Dead letters of a group, many at a time: look at them, hand them out again, do away with them, undo.

Every change can be tried out first (`dry_run`), says which letters it changed, and can be undone with
that for as long as the log keeps them (a week).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from forebay.log.seam import Log
from forebay.log.values import DeadLetter, Group

PAGE = 1_000


class Letters(msgspec.Struct, frozen=True):
    """Dead letters that a call changed, or would change: what undoes it."""

    ids: Sequence[int]
    dry_run: bool = False

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ids)


async def select(
    log: Log, group: Group, ids: Sequence[int] | None, reason: str | None
) -> AsyncIterator[list[int]]:
    """The ids of letters by the page: those named, or all; of these, those whose reason contains a text."""
    wanted = None if ids is None else set(ids)
    if wanted is not None and not wanted:
        return
    after, last = (0, None) if wanted is None else (min(wanted) - 1, max(wanted))
    while page := await log.dead_letters(group, after=max(0, after), limit=PAGE):
        after = page[-1].message_id
        yield [letter.message_id for letter in page if _is_meant(letter, wanted, reason)]
        if last is not None and after >= last:
            return


def _is_meant(letter: DeadLetter, wanted: set[int] | None, reason: str | None) -> bool:
    named = wanted is None or letter.message_id in wanted
    return named and (reason is None or reason in letter.reason)


async def change(
    pages: AsyncIterator[list[int]], apply: Callable[[list[int]], Awaitable[list[int]]], *, dry_run: bool
) -> Letters:
    """Apply a change page by page, or only say what it would be."""
    changed: list[int] = []
    async for page in pages:
        if page:
            changed.extend(page if dry_run else await apply(page))
    return Letters(changed, dry_run)
