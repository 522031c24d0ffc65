"""Workers send what is queued, wait while they should, and settle by what came of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forebay.deliver import delivery as deliveries
from forebay.deliver.dead_letters import DeadLetter, letters_of
from forebay.deliver.delivery import Delivery
from forebay.deliver.entry_data import decode_request, encode_request
from forebay.deliver.failure import failed, of_status
from forebay.deliver.queue_settings import (
    AdaptiveWorkerSettings,
    BackoffSettings,
    BreakerSettings,
    PipelineSettings,
    SendQueueSettings,
)
from forebay.deliver.values import Outcome, Prepared, Request
from forebay.model import Rejected, Unavailable
from tests.unit.deliver.queues import QueueRig

OK = of_status(200)


class Scripted:
    """A destination that answers as it is told, and remembers what it got."""

    name = "scripted"

    def __init__(self) -> None:
        self.answer: Callable[[Request], Outcome] = lambda _: OK
        self.seen: list[Request] = []
        self.ids: list[str] = []
        self.most = self.under_way = 0
        self.got = asyncio.Condition()
        self.hold: asyncio.Event | None = None

    def prepare(self, request: Request, *, id: str) -> Prepared:
        if request.method == b"BAD":
            raise Rejected("can't be sent")
        return Prepared(id, request, b"", request.body)

    async def send(self, prepared: Prepared) -> Outcome:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            self.seen.append(prepared.request)
            self.ids.append(prepared.id)
            async with self.got:
                self.got.notify_all()
            if self.hold is not None:
                await self.hold.wait()
            return self.answer(prepared.request)
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        pass

    async def until(self, count: int) -> None:
        async with self.got:
            await self.got.wait_for(lambda: len(self.seen) >= count)


class DeliveryRig(QueueRig):
    """A queue whose entries are delivered to a scripted destination."""

    def __init__(self, settings: SendQueueSettings, sends: asyncio.Semaphore | None = None) -> None:
        super().__init__(settings)
        self.destination = Scripted()
        limit = sends or asyncio.Semaphore(settings.global_send_limit)
        self.delivery = Delivery(
            self.queue, self.destination, settings, sends=limit, clock=self.clock, chance=lambda: 1.0
        )

    async def push(self, *bodies: bytes, method: bytes = b"POST", headers: tuple[Any, ...] = ()) -> None:
        for body in bodies:
            await self.queue.push(encode_request(Request(method, b"/x", headers, body)))

    async def empty(self) -> None:
        while self.queue.size:
            await self.queue._next_round()

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.destination.seen]

    async def letters(self) -> list[DeadLetter]:
        return [kept.letter for kept in letters_of(self.dead_backing)]


@asynccontextmanager
async def a_delivery(*, start: bool = True, **settings: Any) -> AsyncIterator[DeliveryRig]:
    rig = DeliveryRig(SendQueueSettings(**settings).resolve(cpus=2))
    if start:
        rig.delivery.start()
    try:
        yield rig
    finally:
        await rig.delivery.stop(asyncio.get_running_loop().time())
        await rig.queue.close()


SPLIT = PipelineSettings(enabled=True, preparer_count=2, sender_count=3, channel_size=4)


@pytest.fixture(params=["workers", "pipeline"])
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "workers":
        return {}
    return {"pipeline_split": SPLIT}


async def test_everything_is_delivered_once(mode: dict[str, Any]) -> None:
    async with a_delivery(**mode) as rig:
        await rig.push(*(b"%d" % number for number in range(200)))
        await rig.empty()
        assert sorted(rig.bodies) == sorted(b"%d" % number for number in range(200))
        assert rig.delivery.counts.delivered == 200
        assert rig.delivery.in_flight == 0


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_success(status: int) -> None:
    async with a_delivery() as rig:
        rig.destination.answer = lambda _: of_status(status)
        await rig.push(b"a")
        await rig.empty()
        assert len(rig.bodies) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_failure_is_retried_with_the_same_id(mode: dict[str, Any], status: int) -> None:
    async with a_delivery(retry_interval=0.001, **mode) as rig:
        answers = [of_status(status), of_status(status), OK]
        rig.destination.answer = lambda _: answers.pop(0)
        await rig.push(b"a")
        await rig.empty()
        assert rig.destination.ids == ["0", "0", "0"]
        counts = rig.delivery.counts
        assert (counts.retries, counts.retries_delivered) == (2, 1)
        assert sum(counts.failures.values()) == 2


async def test_what_is_refused_for_good_becomes_a_dead_letter_with_its_reason(mode: dict[str, Any]) -> None:
    async with a_delivery(**mode) as rig:
        rig.destination.answer = lambda _: of_status(400, answer=b"no such metric")
        await rig.push(b"a")
        await rig.empty()
        (letter,) = await rig.letters()
        assert (letter.status, letter.error_class, letter.attempts) == (400, "client_error", 1)
        assert letter.answer == b"no such metric"
        assert decode_request(letter.data).body == b"a"
        assert rig.delivery.counts.buried == {"client_error": 1}


async def test_what_cant_be_prepared_or_read_is_a_dead_letter(mode: dict[str, Any]) -> None:
    async with a_delivery(**mode) as rig:
        await rig.push(b"a", method=b"BAD")
        await rig.queue.push(b"\xc1 not a request")
        await rig.empty()
        reasons = [letter.reason for letter in await rig.letters()]
        assert len(reasons) == 2
        assert "can't be sent" in "".join(reasons)
        assert rig.destination.seen == []


async def test_a_request_that_is_too_large_is_sent_in_halves(mode: dict[str, Any]) -> None:
    headers = ((b"Content-Type", b"application/x-ndjson"),)
    async with a_delivery(workers=1, **mode) as rig:
        rig.destination.answer = lambda request: OK if request.body.count(b"\n") <= 2 else of_status(413)
        await rig.push(b"".join(b'{"n":%d}\n' % number for number in range(8)), headers=headers)
        await rig.empty()
        delivered = [body for body in rig.bodies if body.count(b"\n") <= 2]
        assert b"".join(delivered) == b"".join(b'{"n":%d}\n' % number for number in range(8))
        assert len(delivered) == 4
        assert rig.delivery.counts.splits == 3
        assert len(set(rig.destination.ids)) == len(rig.destination.ids)


async def test_a_part_that_stays_too_large_is_a_dead_letter_and_the_others_arrive() -> None:
    headers = ((b"Content-Type", b"application/x-ndjson"),)
    lines = [b'{"n":%d}\n' % number for number in range(4)]
    async with a_delivery(workers=1) as rig:
        rig.destination.answer = lambda request: (
            of_status(413) if lines[1] in request.body or len(request.body) > 16 else OK
        )
        await rig.push(b"".join(lines), headers=headers)
        await rig.empty()
        (letter,) = await rig.letters()
        assert decode_request(letter.data).body == lines[1]
        assert "can't be split" in letter.reason
        assert lines[0] in rig.bodies
        assert b"".join(lines[2:]) in rig.bodies


async def test_a_part_that_fails_is_retried_and_the_delivered_one_isnt_sent_again() -> None:
    headers = ((b"Content-Type", b"application/x-ndjson"),)
    async with a_delivery(workers=1, retry_interval=0.001) as rig:
        answers = [of_status(413), OK, of_status(500), OK]
        rig.destination.answer = lambda _: answers.pop(0)
        await rig.push(b'{"n":1}\n{"n":2}\n', headers=headers)
        await rig.empty()
        assert rig.bodies[1:] == [b'{"n":1}\n', b'{"n":2}\n', b'{"n":2}\n']


async def test_an_open_breaker_leaves_the_queue_alone(mode: dict[str, Any]) -> None:
    breaker = BreakerSettings(threshold=3, reset_timeout=3600.0)
    async with a_delivery(circuit_breaker=breaker, retry_interval=0.001, workers=1, **mode) as rig:
        rig.destination.answer = lambda _: of_status(503)
        await rig.push(*(b"%d" % number for number in range(50)))
        while rig.delivery.admission.breaker.state != "open":
            await rig.queue._next_round()
        tries = len(rig.bodies)
        for _ in range(5):
            await rig.queue._next_round()
        assert len(rig.bodies) == tries <= 3 + rig.delivery.senders.wanted
        assert rig.queue.size == 50
        assert rig.delivery.admission.refused


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        pytest.param(BackoffSettings(multiplier=3.0), [0.001, 0.003, 0.009, 0.02, 0.02], id="grow"),
        pytest.param(BackoffSettings(enabled=False), [0.001] * 5, id="stay"),
    ],
)
async def test_pauses_grow_up_to_the_longest_unless_that_is_switched_off(
    backoff: BackoffSettings, pauses: list[float]
) -> None:
    breaker = BreakerSettings(threshold=1_000)
    async with a_delivery(
        retry_interval=0.001, max_retry_delay=0.02, backoff=backoff, circuit_breaker=breaker, workers=1
    ) as rig:
        found: list[float] = []

        def answer(_: Request) -> Outcome:
            found.append(rig.delivery.counts.backoff_seconds)
            return of_status(503) if len(found) <= len(pauses) else OK

        rig.destination.answer = answer
        await rig.push(b"x")
        await rig.empty()
    assert found[1:] == pytest.approx(pauses)


async def test_a_breaker_that_is_switched_off_never_opens() -> None:
    breaker = BreakerSettings(enabled=False, threshold=2, reset_timeout=3_600.0)
    async with a_delivery(circuit_breaker=breaker, retry_interval=0.001, max_retry_delay=0.001) as rig:
        rig.destination.answer = lambda _: of_status(503 if len(rig.bodies) <= 20 else 200)
        await rig.push(b"x", b"y")
        await rig.empty()
        assert rig.delivery.admission.breaker.opened == rig.delivery.admission.refused == 0


async def test_after_an_outage_everything_arrives() -> None:
    breaker = BreakerSettings(threshold=2, reset_timeout=0.01)
    async with a_delivery(circuit_breaker=breaker, retry_interval=0.001) as rig:
        rig.destination.answer = lambda _: failed(ConnectionRefusedError())
        await rig.push(*(b"%d" % number for number in range(30)))
        await rig.destination.until(5)
        rig.destination.answer = lambda _: OK
        await rig.empty()
        assert len(set(rig.bodies)) == 30


async def test_a_pause_that_is_asked_for_holds_up_everything() -> None:
    async with a_delivery(workers=1) as rig:
        rig.destination.answer = lambda _: of_status(429, retry_after_seconds=3600.0)
        await rig.push(b"a", b"b")
        await rig.destination.until(1)
        await rig.queue._next_round()
        assert len(rig.bodies) == 1
        assert rig.delivery.counts.backoff_seconds == 300.0  # max_retry_delay bounds it


async def test_no_more_workers_send_than_there_are() -> None:
    async with a_delivery(workers=3) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(20)))
        await rig.destination.until(3)
        await rig.queue._next_round()
        assert rig.destination.under_way == rig.delivery.in_flight == rig.delivery.busy_workers == 3
        rig.destination.hold.set()
        await rig.empty()
        assert rig.destination.most == 3


async def test_the_pipeline_keeps_to_its_limits() -> None:
    async with a_delivery(pipeline_split=SPLIT, max_concurrent_sends=2) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(40)))
        await rig.destination.until(6)
        await rig.queue._next_round()
        assert rig.destination.under_way == 6  # 3 senders, 2 each
        assert rig.queue._window.leased <= 6 + 4 + 2  # under way, in the channel, with preparers
        rig.destination.hold.set()
        await rig.empty()
        assert rig.destination.most == 6


async def test_the_global_limit_holds_over_all_destinations() -> None:
    settings = SendQueueSettings(workers=4).resolve()
    limit = asyncio.Semaphore(3)
    rigs = [DeliveryRig(settings, limit) for _ in range(2)]
    for rig in rigs:
        rig.destination.hold = asyncio.Event()
        rig.delivery.start()
        await rig.push(*(b"%d" % number for number in range(10)))
    for rig in rigs:
        await rig.queue._next_round()
    assert sum(rig.destination.under_way for rig in rigs) == 3
    for rig in rigs:
        assert rig.destination.hold is not None
        rig.destination.hold.set()
    for rig in rigs:
        await rig.empty()
        await rig.delivery.stop(0)
        await rig.queue.close()


async def test_a_stop_settles_what_is_answered_in_time_and_keeps_the_rest(mode: dict[str, Any]) -> None:
    async with a_delivery(workers=2, max_concurrent_sends=1, **mode) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(30)))
        await rig.destination.until(2)
        loop = asyncio.get_running_loop()
        stopping = asyncio.create_task(rig.delivery.stop(loop.time() + 3600))
        await asyncio.sleep(0)
        rig.destination.hold.set()
        await stopping
        assert rig.queue.size == 30 - rig.delivery.counts.delivered
        assert rig.queue._window.leased == 0
        assert rig.delivery.counts.delivered == len(rig.bodies)


async def test_a_stop_at_its_deadline_gives_back_what_is_under_way(mode: dict[str, Any]) -> None:
    async with a_delivery(workers=2, max_concurrent_sends=1, **mode) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(30)))
        await rig.destination.until(2)
        await rig.delivery.stop(asyncio.get_running_loop().time())
        assert rig.queue.size == 30
        assert rig.queue._window.leased == rig.destination.under_way == 0
        assert rig.delivery.admission.in_flight == 0


@pytest.mark.parametrize("least", [1, 4])
async def test_adaptive_workers_grow_with_the_work_and_shrink_without(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(deliveries, "_SCALE_SECONDS", 0.001)
    adaptive = AdaptiveWorkerSettings(enabled=True, min_workers=least, max_workers=9)
    async with a_delivery(workers=least, adaptive_workers=adaptive) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(40)))
        await rig.destination.until(9)
        assert rig.delivery.workers == 9
        rig.destination.hold.set()
        await rig.empty()
        while rig.delivery.workers > least:
            await rig.queue._next_round()
        for _ in range(5):
            await rig.queue._next_round()
        assert rig.delivery.workers == least
        assert rig.destination.most == 9


REMOTE_WRITE = ((b"X-Prometheus-Remote-Write-Version", b"0.1.0"),)


async def test_remote_writes_never_overtake_each_other(mode: dict[str, Any]) -> None:
    async with a_delivery(retry_interval=0.001, workers=8, **mode) as rig:
        delivered: list[bytes] = []
        draw = random.Random(1)

        def answer(request: Request) -> Outcome:
            if draw.random() < 0.3:
                return of_status(503)
            delivered.append(request.body)
            return OK

        rig.destination.answer = answer
        bodies = [b"%d" % number for number in range(60)]
        await rig.push(*bodies, headers=REMOTE_WRITE)
        await rig.empty()
        assert delivered == bodies
        assert rig.destination.most == 1


async def test_what_has_no_order_passes_a_remote_write_that_waits() -> None:
    async with a_delivery(workers=2) as rig:
        rig.destination.answer = lambda request: of_status(503) if request.headers else OK
        await rig.push(b"stuck", b"behind", headers=REMOTE_WRITE)
        await rig.push(b"free")
        while b"free" not in rig.bodies:
            await rig.queue._next_round()
        assert b"behind" not in rig.bodies


async def test_a_refused_remote_write_doesnt_hold_up_those_behind_it() -> None:
    async with a_delivery(workers=2) as rig:
        rig.destination.answer = lambda request: of_status(400) if request.body == b"bad" else OK
        await rig.push(b"bad", b"good", headers=REMOTE_WRITE)
        await rig.empty()
        assert rig.bodies == [b"bad", b"good"]
        assert len(await rig.letters()) == 1


@pytest.mark.parametrize(("order", "most"), [("strict", 1), ("none", 4)])
async def test_the_order_can_be_asked_for_or_given_up(order: str, most: int) -> None:
    async with a_delivery(workers=4, order=order) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"%d" % number for number in range(10)), headers=REMOTE_WRITE)
        await rig.destination.until(most)
        await rig.queue._next_round()
        assert rig.destination.under_way == most
        rig.destination.hold.set()
        await rig.empty()


async def test_the_oldest_of_ordered_entries_are_dropped_when_it_is_full() -> None:
    async with a_delivery(start=False, max_size=3, order="strict") as rig:
        await rig.push(*(b"%d" % number for number in range(6)))
        assert rig.queue.dropped == {"oldest": 3}
        rig.delivery.start()
        await rig.empty()
        assert rig.bodies == [b"3", b"4", b"5"]


async def test_an_ordered_backlog_larger_than_the_window_is_delivered() -> None:
    async with a_delivery(inmemory_blocks=8, order="strict") as rig:
        await rig.push(*(b"%d" % number for number in range(100)))
        await rig.empty()
        assert rig.bodies == [b"%d" % number for number in range(100)]


async def test_the_first_in_line_tries_again_as_soon_as_the_breaker_would() -> None:
    breaker = BreakerSettings(reset_timeout=0.5)
    async with a_delivery(order="strict", retry_interval=100.0, circuit_breaker=breaker) as rig:
        rig.destination.answer = lambda _: of_status(503)
        await rig.push(b"a")
        await rig.destination.until(1)
        await rig.queue._next_round()
        assert rig.delivery.counts.backoff_seconds == 0.5


def a_request(body: bytes) -> Request:
    return Request(b"POST", b"/x", (), body)


async def test_requests_without_a_queue_wait_for_their_turn() -> None:
    async with a_delivery(start=False, workers=2) as rig:
        rig.delivery.admission.in_flight_max = 2
        tasks = [asyncio.create_task(rig.delivery.send_once(a_request(b"%d" % n))) for n in range(10)]
        outcomes = await asyncio.gather(*tasks)
        assert all(outcome.is_delivered for outcome in outcomes)
        assert rig.destination.most <= 2


async def test_requests_without_a_queue_are_refused_while_the_breaker_is_open() -> None:
    async with a_delivery(start=False, circuit_breaker=BreakerSettings(threshold=1)) as rig:
        rig.destination.answer = lambda _: of_status(503)
        await rig.delivery.send_once(a_request(b"a"))
        with pytest.raises(Unavailable):
            await rig.delivery.send_once(a_request(b"b"))
        assert rig.bodies == [b"a"]
        assert not await rig.delivery.send_now(a_request(b"c"))


@pytest.mark.parametrize("jump_us", [10**15, -(10**15)], ids=["forward", "backward"])
async def test_a_clock_that_jumps_holds_up_no_retry_and_makes_no_age_negative(jump_us: int) -> None:
    async with a_delivery(retry_interval=0.001, circuit_breaker=BreakerSettings(reset_timeout=0.01)) as rig:
        rig.clock.now += 10**15
        rig.destination.answer = lambda _: of_status(503)
        await rig.push(b"a", b"b", b"c")
        await rig.destination.until(6)
        rig.clock.now += jump_us
        assert rig.queue.oldest_seconds() >= 0
        rig.destination.answer = lambda _: OK
        await rig.push(b"d")
        await rig.empty()
        assert {*rig.bodies} == {b"a", b"b", b"c", b"d"}
        assert rig.queue.dead_count == 0
