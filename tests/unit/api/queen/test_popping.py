"""Pops that settle what they bring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from forebay.api.queen import popping
from forebay.model import LeaseLost
from forebay.store.values import Task
from forebay.warm.values import Lease


def task(id: int) -> Task:
    return Task(
        id, 1, b"", 0, 0, 0, None, Lease(1, "epoch", 1, 1, id, 1, 0, 0, None, "p"), 100, "p", f"t{id}"
    )


async def test_of_what_is_settled_with_the_pop_the_client_gets_all() -> None:
    async def done_task(_: Any) -> None:
        raise LeaseLost("one was taken away", hint="", ids=[2])

    desk = SimpleNamespace(store=SimpleNamespace(done_task=done_task))
    tasks, payloads = await popping._acked(cast("Any", desk), [task(1), task(2), task(3)], [b"1", b"2", b"3"])
    assert [one.id for one in tasks] == [1, 3]
    assert payloads == [b"1", b"3"]
