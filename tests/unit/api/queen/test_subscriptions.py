"""Where groups began, and which leases are over."""

from __future__ import annotations

from forebay.api.queen.subscriptions import Subscription, Subscriptions, subscription_of
from forebay.log.memory import MemoryLog
from forebay.log.values import Position

NOW = 1_800_000_000_000_000


def test_a_group_begins_again_at_the_message_at_which_it_began() -> None:
    assert subscription_of("latest", 7, NOW).start == Position(7)
    assert subscription_of("earliest", 1, NOW).start == Position(1)
    assert Subscription("timestamp", NOW, NOW).start == NOW
    assert Subscription("all", None, NOW).start == "earliest"


def test_the_mode_says_what_was_asked_for() -> None:
    made = [subscription_of(start, 1, NOW) for start in ("earliest", "latest", NOW - 5)]
    assert [(one.mode, one.timestamp) for one in made] == [
        ("all", None),
        ("new", NOW),
        ("timestamp", NOW - 5),
    ]


async def test_subscriptions_are_kept_by_queue_and_group() -> None:
    async with MemoryLog() as log:
        subscriptions = Subscriptions(lambda: log)
        one = subscription_of("latest", 3, NOW)
        await subscriptions.keep(1, "g", one)
        await subscriptions.keep(11, "g", one)
        await subscriptions.fence(1, "g", NOW)
        assert await subscriptions.find([(1, "g"), (2, "g"), (11, "g")]) == {(1, "g"): one, (11, "g"): one}
        await subscriptions.forget_queue(1)
        assert await subscriptions.find([(1, "g"), (11, "g")]) == {(11, "g"): one}
        assert await subscriptions.fenced_at(1, "g") == 0
        await subscriptions.forget(11, "g")
        assert await subscriptions.find([(11, "g")]) == {}


async def test_a_fence_is_the_last_time_that_a_group_was_sent_elsewhere() -> None:
    async with MemoryLog() as log:
        subscriptions = Subscriptions(lambda: log)
        now = (await log.stats()).at
        assert await subscriptions.fenced_at(1, "g") == 0
        for moment in (now, now + 5):
            await subscriptions.fence(1, "g", moment)
            assert await subscriptions.fenced_at(1, "g") == moment
