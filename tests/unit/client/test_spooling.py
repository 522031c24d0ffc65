"""What the client's spool takes for an outage, for a refusal, and for a reason to wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from forebay.client.calling import Ask, Caller, NotForebayError, Reply
from forebay.client.spooling import ATTEMPTS, ForOthersError, Server, Way
from forebay.failover.health import Health
from forebay.log.values import Appended, Queue, QueueSettings
from forebay.model import (
    Block,
    Forbidden,
    ForebayError,
    Message,
    Misconfigured,
    Rejected,
    TooMany,
    Unavailable,
)

BLOCK = Block.of([Message(b"a")])
DONE = Appended(1, 1)


class Posts:
    """Answers posts in turn: with errors, and then with success."""

    def __init__(self, errors: Sequence[ForebayError]) -> None:
        self.errors = list(errors)
        self.attempts: list[int] = []
        self.replayed: list[bool] = []

    async def __call__(
        self,
        _queue: str,
        _block: Block,
        _body: bytes | None,
        attempts_max: int,
        /,
        *,
        replayed: bool = False,
    ) -> Appended:
        self.attempts.append(attempts_max)
        self.replayed.append(replayed)
        if self.errors:
            raise self.errors.pop(0)
        return DONE


async def queue(name: str) -> Queue:
    return Queue(1, name, QueueSettings(), 0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the pauses that were made, without making them."""
    made: list[float] = []
    ours, as_ever = threading.current_thread(), asyncio.sleep

    async def pause(seconds: float) -> None:
        if threading.current_thread() is ours:
            made.append(seconds)
        else:  # a server of other tests, in a thread of its own
            await as_ever(seconds)

    monkeypatch.setattr("forebay.client.spooling.asyncio.sleep", pause)
    return made


async def test_who_asks_too_often_goes_on_as_told_and_does_not_begin_again(pauses: list[float]) -> None:
    posts = Posts([TooMany("slowly", retry_after_seconds=3.0)] * 4)
    assert await Server(posts, queue).append("q", BLOCK) == DONE
    assert [3.0 <= pause < 4.0 for pause in pauses] == [True] * 4
    assert posts.attempts == [ATTEMPTS] * 5
    assert posts.replayed == [True] * 5


async def test_only_what_was_spooled_was_accepted_before_it_is_sent() -> None:
    posts = Posts([])
    await Server(posts, queue).send("q", BLOCK)
    await Server(posts, queue).append("q", BLOCK)
    assert posts.replayed == [False, True]


async def test_somebody_else_who_answers_is_an_outage() -> None:
    with pytest.raises(Unavailable, match="nginx"):
        await Server(Posts([NotForebayError("this is nginx")]), queue).append("q", BLOCK)


async def test_a_key_is_for_other_queues_only_if_it_was_good_for_one() -> None:
    posts = Posts([Forbidden("no")])
    server = Server(posts, queue)
    with pytest.raises(Forbidden):
        await server.append("theirs", BLOCK)
    await server.send("ours", BLOCK)
    posts.errors = [Forbidden("no")]
    with pytest.raises(ForOthersError):
        await server.append("theirs", BLOCK)
    posts.errors = [Forbidden("no")]
    with pytest.raises(Forbidden):  # who pushes himself is told
        await server.send("theirs", BLOCK)


class Answers:
    """A caller that answers as it is told."""

    def __init__(self, error: ForebayError | None) -> None:
        self.error = error
        self.asked: list[Ask] = []

    async def ask(self, ask: Ask) -> Reply:
        self.asked.append(ask)
        return Reply(error=self.error)


def way_to(caller: Any, health: Health | None = None) -> Way:
    return Way(Server(Posts([Unavailable("still away")]), queue), caller, health or Health(), seconds=1.0)


@pytest.mark.parametrize("error", [None, Rejected("no such page"), NotForebayError("who?")])
async def test_anybody_who_answers_is_there(error: ForebayError | None) -> None:
    answers = Answers(error)
    await way_to(answers).ping()
    assert [(ask.path, ask.attempts_max) for ask in answers.asked] == [("/healthz", 1)]


@pytest.mark.parametrize("error", [Unavailable("nobody"), Misconfigured("a strange certificate")])
async def test_nobody_is_there_who_does_not_answer(error: ForebayError) -> None:
    with pytest.raises(type(error)):
        await way_to(Answers(error)).ping()


async def test_a_server_is_looked_for_less_and_less_often_until_it_is_back(pauses: list[float]) -> None:
    way = way_to(Answers(None))
    for _ in range(12):
        await way.ping()
    assert len(pauses) == 11
    assert pauses[0] <= 0.1
    assert 1.0 <= pauses[-1] <= 2.0
    await way.catch_up()
    pauses.clear()
    await way.ping()
    assert pauses == []


async def test_why_nothing_is_delivered_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    way = way_to(Answers(None), health)
    health.recover()
    health.fail("cut")
    for _ in range(2):
        way._store._store._post.errors = [Unavailable("still away")]  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            await way.write([("q", BLOCK)])
    assert health.reason == "still away"
    assert caplog.text.count("can't be delivered: still away") == 1


async def test_a_request_is_sent_no_more_often_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller("http://127.0.0.1:1", key=None, ca_file=None, timeout_seconds=30, connections_max=1)
    tried: list[float] = []
    once = caller._once

    async def counted(ask: Ask, seconds: float) -> bytes:
        tried.append(seconds)
        return await once(ask, seconds)

    monkeypatch.setattr(caller, "_once", counted)
    caller.open()
    for attempts in (1, 3):
        reply = await caller.ask(Ask("GET", "/", attempts_max=attempts))
        assert isinstance(reply.error, Unavailable)
        assert len(tried) == attempts
        tried.clear()
    await caller.close()
