"""Typed queues: tasks are put also where their queue can't be looked at, and it is looked at once."""

import asyncio
from typing import Any

import pytest

from forebay.contract import Format, WorkSettings
from forebay.log.values import Queue, QueueSettings
from forebay.model import Forbidden, ForebayError, Misconfigured, Unavailable, UnknownQueue
from forebay.work import BindingSettings, typed
from forebay.work.typed import Putter

FORMAT = Format.of(3, "emails", {"to": "string"})


class FakeStore:
    """A store with one queue, or none; `fault` is raised by whoever looks at it."""

    def __init__(self, fault: ForebayError | None = None, *, is_there: bool = True) -> None:
        self.fault = fault
        self.is_there = is_there
        self.looked = 0
        self.put: list[bytes] = []
        self.made_with: dict[str, Any] = {}

    async def queue(self, name: str) -> Queue:
        self.looked += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        if not self.is_there:
            raise UnknownQueue("none")
        return Queue(3, name, QueueSettings(), 0)

    async def create_queue(self, name: str, settings: dict[str, Any], *, number: int) -> Queue:
        assert number == 3
        self.made_with = settings
        self.is_there = True
        return await self.queue(name)

    async def put_task(self, queue: str, *tasks: bytes, **options: Any) -> list[int]:
        assert (queue, options["headers"]) == ("emails", {"codec": "msgpack"})
        if not self.is_there:
            raise UnknownQueue("none")
        self.put += tasks
        return []


def queue_on(store: FakeStore) -> Putter:
    anything: Any = store
    return Putter(anything, FORMAT)


def test_what_a_contract_says_of_the_work_is_the_workers_and_what_it_does_not_is_the_default() -> None:
    said = WorkSettings(visibility_seconds=5.0, handle_seconds_max=7200.0, retries_max=3)
    expected = BindingSettings(visibility_seconds=5.0, handle_seconds_max=7200.0, retries_max=3)
    assert typed.binding_settings(said) == expected
    assert typed.binding_settings(WorkSettings()) == BindingSettings()


async def test_a_queue_is_looked_at_once_however_many_begin_together() -> None:
    store = FakeStore()
    queue = queue_on(store)
    await asyncio.gather(*(queue.put(["a"]) for _ in range(10)))
    await queue.put_many([{"to": "b"}, {"to": "c"}])
    assert (store.looked, len(store.put)) == (1, 12)


@pytest.mark.parametrize("fault", [Unavailable("away"), Forbidden("a key that may only push")])
async def test_tasks_are_put_where_the_queue_cannot_be_looked_at(
    fault: ForebayError, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(typed, "monotonic", lambda: now)
    store = FakeStore(fault)
    queue = queue_on(store)
    assert [await queue.put(["a"]), await queue.put(["b"])] == [0, 0]
    assert (store.looked, len(store.put)) == (1, 2)
    now, store.fault = 131.0, None
    await asyncio.gather(queue.put(["c"]), queue.put(["d"]))
    assert (store.looked, len(store.put)) == (2, 4)


async def test_a_store_that_does_not_answer_holds_no_task_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(FakeStore):
        """Never says which queue it has."""

        async def queue(self, name: str) -> Queue:
            await asyncio.Event().wait()
            return await super().queue(name)

    monkeypatch.setattr(typed, "_PREPARE_SECONDS", 0.01)
    store = Silent()
    await queue_on(store).put(["a"])
    assert len(store.put) == 1


async def test_a_queue_is_made_as_the_contract_says() -> None:
    anything: Any = FakeStore(is_there=False)
    settings = WorkSettings(ordered=True, visibility_seconds=5.0, retries_max=4)
    with pytest.raises(Misconfigured, match="is to be ordered"):  # the fake doesn't do what it is told
        await Putter(anything, Format.of(3, "emails", {"to": "string"}, settings=settings)).create()
    assert anything.made_with == {"ordered": True, "visibility_seconds": 5.0, "retries_max": 4}


async def test_a_queue_that_was_deleted_is_made_again() -> None:
    store = FakeStore(is_there=False)
    queue = queue_on(store)
    await queue.put(["a"])
    assert store.made_with == {"ordered": False}
    store.is_there = False
    await queue.put(["b"])
    assert len(store.put) == 2
