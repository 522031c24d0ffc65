"""Waiting for tasks on behalf of a client.

Invariants: nobody waits for a client that has left, nor while the server stops; what was taken for a client
that left in that moment goes back, unused.
"""

from __future__ import annotations

import asyncio

from forebay.api.bodies import Gone
from forebay.api.calls import Call
from forebay.store.values import Task


async def waited(call: Call, taking: asyncio.Task[list[Task]], seconds: float) -> list[Task]:
    """Wait for tasks, unless the client leaves or the server stops."""
    context = call.context
    call.wait_longer(seconds)
    watching = asyncio.create_task(call.watch())
    watching.add_done_callback(lambda _: taking.cancel())
    context.waiting.add(taking)
    try:
        tasks = await taking
    except asyncio.CancelledError:
        if not taking.cancelled() or (task := asyncio.current_task()) is None or task.cancelling():
            taking.cancel()
            raise
        if watching.done():
            raise Gone from None
        return []
    finally:
        context.waiting.discard(taking)
        watching.cancel()
    if watching.done() and not watching.cancelled() and tasks:
        await context.store.release(tasks)
        raise Gone
    return tasks
