"""Redrive and purge: dead letters back into their queue, or gone, page by page.

Invariants: a letter is removed after its entry is on disk, so a crash between them sends it twice and loses
nothing; a redrive never drops what is queued, and leaves room for pushes. Letters that are buried meanwhile
are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from forebay.deliver.dead_letters import KeptLetter, LetterChoice
from forebay.deliver.entry_data import redriven_data
from forebay.deliver.send_queue import SendQueue
from forebay.model import Full, Unavailable

__all__ = ["FILL_MAX", "LetterJob", "LetterStep", "Verb", "run_job"]

Verb: TypeAlias = Literal["redrive", "purge"]
FILL_MAX: Final = 0.8
"""The share of a queue that a redrive fills; the rest is for pushes, which would drop the oldest entries."""


class LetterJob(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do with the letters of one destination."""

    verb: Verb
    choice: LetterChoice = LetterChoice()
    dry_run: bool = False


class LetterStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is: one page of letters."""

    total: int
    """Letters that are looked at in all."""
    looked: int
    """Letters of this page."""
    ids: Sequence[str] = ()
    """Those of them that were meant, and with which it is done."""


async def run_job(queue: SendQueue, job: LetterJob) -> AsyncGenerator[LetterStep, None]:
    """Do it. Full where the queue has no room for more: what wasn't named by a step is as it was."""
    letters = queue.dead_letters
    total = left = letters.count
    first: int | None = 0
    while left > 0 and first is not None:
        page, first = await asyncio.to_thread(letters.page, first)
        chosen = [kept for kept in page[:left] if job.choice.has(kept)]
        left -= len(page)
        fitting: Sequence[KeptLetter] = chosen
        if job.verb == "redrive":
            fitting = await _redrive(queue, chosen, dry_run=job.dry_run)
        if fitting and not job.dry_run:
            await asyncio.to_thread(letters.remove, [kept.sequence for kept in fitting])
        yield LetterStep(total=total, looked=len(page), ids=[kept.id for kept in fitting])
        if len(fitting) < len(chosen):
            raise Full(
                f"the queue is {FILL_MAX:.0%} full, and the other dead letters stay",
                hint="redrive them when the destination has taken some, or raise max_size and max_bytes",
                retry_after_seconds=1.0,
            )


async def _redrive(queue: SendQueue, chosen: Sequence[KeptLetter], *, dry_run: bool) -> Sequence[KeptLetter]:
    """Put letters into the queue, as many as there is room for; they are on disk when it returns."""
    if dry_run or not chosen:
        return chosen
    pushes: list[asyncio.Future[None]] = []
    for kept in chosen:
        data = redriven_data(kept.letter.data, kept.id)
        if queue.room.utilization_with(len(data)) > FILL_MAX or not queue.reserve_now(len(data)):
            break
        pushes.append(queue.write_soon(data))
    for result in await asyncio.gather(*pushes, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
    await queue.sync()
    if queue.volatile:
        raise Unavailable(
            "the disk doesn't take entries, and the dead letters stay", hint="look at the disk, then again"
        )
    return chosen[: len(pushes)]
