"""Ending tasks: also those that swallow their cancellation."""

import asyncio

from forebay.model import cancel


async def test_a_task_that_swallows_its_cancellation_is_cancelled_again() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancel(task)
    assert task.cancelled()
    assert swallowed == 3


async def test_nothing_and_what_has_ended_are_fine() -> None:
    async def fail() -> None:
        raise ValueError

    failed = asyncio.create_task(fail())
    await asyncio.wait([failed])
    await cancel(None, failed)
    assert isinstance(failed.exception(), ValueError)
