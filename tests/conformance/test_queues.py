"""Queues: names, numbers and settings."""

import asyncio
from typing import Any

import pytest

from forebay.model import QUEUE_NUMBER_MAX, Conflict, Rejected, UnknownQueue
from tests.conformance.rigs import Rig
from tests.conformance.steps import bits, push, sequences, stored, take


async def test_creating_a_queue_twice_gives_the_same(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": 5.0})
    assert queue.created_at == rig.clock.now()
    rig.clock.advance(seconds=1)
    assert await rig.log.create_queue("orders", {"keep_seconds": 9.0}) == queue
    assert await rig.log.queue("orders") == queue
    assert queue.settings.keep_seconds == 5.0


async def test_queues_created_at_once_are_one(rig: Rig) -> None:
    made = await asyncio.gather(*[rig.log.create_queue("orders") for _ in range(5)])
    assert {queue.number for queue in made} == {made[0].number}
    assert len(await rig.log.queues()) == 1


async def test_an_inbox_in_which_nothing_is_has_nothing_rejected(rig: Rig) -> None:
    assert await rig.log.sweep() == 0
    assert await rig.log.inbox_rejected() == []
    assert await rig.log.inbox_rejected(after=5, limit=10) == []


async def test_queues_are_listed_by_number(rig: Rig) -> None:
    await rig.log.create_queue("late", number=9)
    await rig.log.create_queue("early", number=2)
    await rig.log.create_queue("next")
    assert [(queue.name, queue.number) for queue in await rig.log.queues()] == [
        ("early", 2),
        ("late", 9),
        ("next", 10),
    ]


async def test_queues_are_listed_by_the_page(rig: Rig) -> None:
    for name in "abcde":
        await rig.log.create_queue(name)
    await rig.log.delete_queue("c")

    async def names(**page: Any) -> str:
        return "".join(queue.name for queue in await rig.log.queues(**page))

    assert [await names(limit=2), await names(after=2, limit=2), await names(after=5, limit=2)] == [
        "ab",
        "de",
        "",
    ]
    assert await names(numbers=[5, 3, 99, 1, 1]) == "ae"
    assert await names(numbers=[1, 2, 4, 5], after=1, limit=2) == "bd"
    assert await names(numbers=[]) == ""


@pytest.mark.parametrize("page", [{"limit": 0}, {"after": -1}, {"numbers": range(1, 10_002)}])
async def test_a_page_that_no_log_has_is_rejected(rig: Rig, page: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        await rig.log.queues(**page)
    with pytest.raises(Rejected):
        await rig.log.stats(**page)


async def test_numbers_of_queues_come_by_the_page(rig: Rig) -> None:
    for name in "abcd":
        queue = await rig.log.create_queue(name)
        group = await rig.log.create_group(queue, "workers")
        await rig.log.create_group(queue, "others")
        await push(rig.log, queue, *"xyz")
        for claim in await take(rig.log, group):
            await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
            await rig.log.mark([claim.mark(handed=bits(claim, 1))])
    await rig.log.delete_queue("b")
    everything = await rig.log.stats()
    assert [found.queue.name for found in everything.queues] == ["a", "c", "d"]
    for found in everything.queues:
        workers, others = found.groups
        assert (workers.held, workers.handed, workers.done, workers.difference) == (2, 1, 1, 0)
        assert (others.ready, others.held, others.difference) == (3, 0, 0)
    pages = [await rig.log.stats(after=after, limit=2) for after in (0, 3, 4)]
    assert [found for page in pages for found in page.queues] == list(everything.queues)
    assert [len(page.queues) for page in pages] == [2, 1, 0]
    chosen = await rig.log.stats(numbers=[4, 2, 1])
    assert chosen.queues == [everything.queues[0], everything.queues[2]]


async def test_the_nearest_name_is_found_among_many(rig: Rig) -> None:
    for number in range(80):
        await rig.log.create_queue(f"tenant-{number:03}.orders")
    with pytest.raises(UnknownQueue) as caught:
        await rig.log.queue("tenant-040.order")
    assert caught.value.hint == "did you mean 'tenant-040.orders'?"


async def test_a_number_is_given_once(rig: Rig) -> None:
    await rig.log.create_queue("orders", number=7)
    with pytest.raises(Conflict):
        await rig.log.create_queue("other", number=7)
    await rig.log.delete_queue("orders")
    with pytest.raises(Conflict):
        await rig.log.create_queue("other", number=7)
    assert await rig.log.queues() == []


@pytest.mark.parametrize("number", [0, -1, QUEUE_NUMBER_MAX + 1])
async def test_a_number_out_of_range_is_rejected(rig: Rig, number: int) -> None:
    with pytest.raises(Rejected):
        await rig.log.create_queue("orders", number=number)


async def test_the_last_number_can_be_used(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", number=QUEUE_NUMBER_MAX)
    await push(rig.log, queue, "a")
    assert await stored(rig.log, queue) == ["a"]
    with pytest.raises(Rejected):
        await rig.log.create_queue("next")


async def test_settings_are_merged(rig: Rig) -> None:
    await rig.log.create_queue("orders", {"keep_seconds": 5.0, "expire_seconds": 7.0})
    queue = await rig.log.configure_queue("orders", {"dedupe_seconds": 1.5})
    queue = await rig.log.configure_queue("orders", {"expire_seconds": None})
    assert queue == await rig.log.queue("orders")
    settings = queue.settings
    assert (settings.keep_seconds, settings.dedupe_seconds) == (5.0, 1.5)
    assert settings.expire_seconds is None
    assert not settings.ordered


async def test_changed_settings_count_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await rig.log.configure_queue("orders", {"dedupe_seconds": 0.0})
    for n in (1, 2):
        assert sequences(await push(rig.log, queue, "a", transaction_ids=["t1"])) == [n]


async def test_an_unknown_setting_names_the_nearest(rig: Rig) -> None:
    with pytest.raises(Rejected, match="keep_seconds"):
        await rig.log.create_queue("orders", {"keep_second": 5.0})
    await rig.log.create_queue("orders")
    with pytest.raises(Rejected, match="ordered"):
        await rig.log.configure_queue("orders", {"orderd": True})


@pytest.mark.parametrize(
    "settings",
    [{"keep_seconds": -1.0}, {"keep_seconds": "long"}, {"dedupe_seconds": float("nan")}],
)
async def test_a_bad_setting_is_rejected(rig: Rig, settings: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        await rig.log.create_queue("orders", settings)
    assert await rig.log.queues() == []
    queue = await rig.log.create_queue("orders")
    with pytest.raises(Rejected):
        await rig.log.configure_queue("orders", settings)
    assert await rig.log.queue("orders") == queue


async def test_order_is_fixed_at_creation(rig: Rig) -> None:
    await rig.log.create_queue("orders")
    with pytest.raises(Conflict):
        await rig.log.configure_queue("orders", {"ordered": True})
    await rig.log.configure_queue("orders", {"ordered": False})
    assert not (await rig.log.queue("orders")).settings.ordered


@pytest.mark.parametrize("name", ["", " ", "a ", "tab\t", ".", "..", "q" * 256, "\ud800"])
async def test_bad_queue_names_are_rejected(rig: Rig, name: str) -> None:
    with pytest.raises(Rejected):
        await rig.log.create_queue(name)
    assert await rig.log.queues() == []


async def test_unusual_queue_names_are_fine(rig: Rig) -> None:
    names = ["Bestellungen für Zürich", "a/b", "'; DROP TABLE queue; --", "🐟", "q" * 255]
    for name in names:
        await rig.log.create_queue(name)
    assert [queue.name for queue in await rig.log.queues()] == names


async def test_an_unknown_queue_names_the_nearest(rig: Rig) -> None:
    await rig.log.create_queue("orders")
    with pytest.raises(UnknownQueue, match="orders"):
        await rig.log.queue("order")
    with pytest.raises(UnknownQueue):
        await rig.log.configure_queue("invoices", {"keep_seconds": 1.0})


async def test_a_deleted_queue_is_gone_with_everything(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    (claim,) = await take(rig.log, group)
    assert await rig.log.delete_queue("orders")
    assert not await rig.log.delete_queue("orders")
    assert not await rig.log.delete_queue("never")
    with pytest.raises(UnknownQueue):
        await rig.log.queue("orders")
    with pytest.raises(UnknownQueue):
        await push(rig.log, queue, "c")
    assert list((await rig.log.commit(settlements=[claim.settle_all()])).conflicts) == [0]
    assert list((await rig.log.stats()).queues) == []


async def test_a_queue_made_again_goes_on_counting(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    await rig.log.delete_queue("orders")
    other = await rig.log.create_queue("other")
    again = await rig.log.create_queue("orders", {"ordered": True})
    assert other.number != queue.number
    assert again.number == queue.number
    assert again.settings.ordered
    assert await rig.log.groups(again) == []
    assert await rig.log.read(again) == []
    group = await rig.log.create_group(again, "workers")
    assert sequences(await push(rig.log, again, "c")) == [3]
    assert [claim.block.decode().payloads for claim in await take(rig.log, group)] == [[b"c"]]


async def test_labels_are_kept_as_they_are(rig: Rig) -> None:
    labels = {"team": "blue", "nested": {"b": [1, 2.5, None, True], "aa": "\N{SNOWMAN}"}, "n": 1 << 60}
    queue = await rig.log.create_queue("orders", {"labels": labels})
    assert queue.settings.labels == labels
    assert (await rig.log.queue("orders")).settings.labels == labels
    await push(rig.log, queue, "a")
    await rig.log.configure_queue("orders", {"keep_seconds": 5.0})
    assert (await rig.log.queue("orders")).settings.labels == labels
    changed = await rig.log.configure_queue("orders", {"labels": {"team": "red"}})
    assert changed == await rig.log.queue("orders")
    assert changed.settings.labels == {"team": "red"}
    with pytest.raises(Rejected, match="labels"):
        await rig.log.configure_queue("orders", {"labels": {"a": "x" * (16 << 10)}})
    assert (await rig.log.queue("orders")) == changed
