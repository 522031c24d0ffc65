"""Small puts that come together go together, and each caller gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.ingest.merging import MERGED_BYTES, MERGED_MESSAGES, SMALL_MESSAGES, Merger, Written, part_of
from forebay.log.values import Appended
from forebay.model import LeaseLost, Message, Rejected, Unavailable, whole


class Server:
    """Takes pushes; while `gate` is closed they stay under way."""

    def __init__(self, *, ordered: bool = False) -> None:
        self.pushed: list[list[bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.error: Exception | None = None
        self.bad = b"bad"
        self._ordered = ordered
        self._next = 1

    async def push(self, queue: str, given: Sequence[Message | bytes]) -> Written:
        assert queue == "orders"
        messages = list(map(whole, given))
        self.pushed.append([message.payload for message in messages])
        self.arrived.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if self._ordered and len({message.partition for message in messages}) > 1:
            raise Rejected("several partitions")
        if any(message.payload == self.bad for message in messages):
            raise Rejected("a bad message")
        first, self._next = self._next, self._next + len(messages)
        return b"id", Appended(first, len(messages))


async def ids(merger: Merger, messages: Sequence[Message | bytes]) -> list[int]:
    """Put messages; their ids."""
    return (await merger.put("orders", messages))[1].ids()


async def under_way(server: Server, merger: Merger) -> asyncio.Task[list[int]]:
    """A first put that has been sent and is not answered."""
    server.gate.clear()
    first = asyncio.create_task(ids(merger, [Message(b"first")]))
    await server.arrived.wait()
    return first


async def gathered(merger: Merger, *payloads: bytes, partition: str = "") -> list[asyncio.Task[list[int]]]:
    """Puts that have lined up."""
    tasks = [asyncio.create_task(ids(merger, [Message(p, partition)])) for p in payloads]
    await asyncio.sleep(0)
    return tasks


async def test_payloads_alone_go_with_whole_messages_of_the_default_partition() -> None:
    server = Server(ordered=True)
    merger = Merger(server.push)
    merger.part("orders")
    first = await under_way(server, merger)
    (whole_one,) = await gathered(merger, b"a")
    payloads = asyncio.create_task(ids(merger, [b"b", b"c"]))
    (apart,) = await gathered(merger, b"other", partition="p")
    server.gate.set()
    await asyncio.gather(first, whole_one, payloads, apart)
    assert sorted(server.pushed) == [[b"a", b"b", b"c"], [b"first"], [b"other"]]


async def test_what_comes_while_a_request_is_under_way_goes_in_the_next() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    others = await gathered(merger, b"a", b"b", b"c")
    assert server.pushed == [[b"first"]]
    server.gate.set()
    assert await first == [1]
    assert [await other for other in others] == [[2], [3], [4]]
    assert server.pushed == [[b"first"], [b"a", b"b", b"c"]]


async def test_of_many_puts_half_go_together_so_that_the_others_get_ready_meanwhile() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    others = await gathered(merger, *[b"x"] * 15)
    server.gate.set()
    assert await first == [1]
    assert [await other for other in others] == [[n] for n in range(2, 17)]
    assert [len(payloads) for payloads in server.pushed][:2] == [1, 8]


async def test_puts_of_several_messages_get_their_own_ids_back() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    two = asyncio.create_task(ids(merger, [Message(b"a"), Message(b"b")]))
    (one,) = await gathered(merger, b"c")
    server.gate.set()
    assert [await first, await two, await one] == [[1], [2, 3], [4]]


async def test_a_duplicate_gets_the_id_of_the_first() -> None:
    async def push(queue: str, messages: Sequence[Message | bytes]) -> Written:
        assert (queue, len(messages)) == ("orders", 3)
        return b"id", Appended(10, 2, {1: 5})

    merger = Merger(push)
    puts = [ids(merger, [Message(name)]) for name in (b"a", b"b", b"c")]
    assert await asyncio.gather(*puts) == [[10], [5], [11]]


async def test_a_failure_goes_to_those_who_were_in_the_request_and_to_nobody_else() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    together = await gathered(merger, b"a", b"b")
    server.error = Unavailable("away", retry_after_seconds=3)
    server.gate.set()
    with pytest.raises(Unavailable):
        await first
    errors = await asyncio.gather(*together, return_exceptions=True)
    assert [(type(e), getattr(e, "retry_after_seconds", 0)) for e in errors] == [(Unavailable, 3)] * 2
    assert errors[0] is not errors[1]
    server.error = None
    assert await ids(merger, [Message(b"later")]) == [1]


async def test_a_bad_message_is_refused_to_its_caller_alone() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    puts = await gathered(merger, b"a", b"b", b"bad", b"c", b"d")
    server.gate.set()
    await first
    answers = await asyncio.gather(*puts, return_exceptions=True)
    assert [a for a in answers if isinstance(a, list)] == [[2], [3], [4], [5]]
    assert isinstance(answers[2], Rejected)


async def test_an_ordered_queue_is_learnt_and_its_partitions_go_apart() -> None:
    server = Server(ordered=True)
    merger = Merger(server.push)
    first = await under_way(server, merger)
    puts = await gathered(merger, b"p1", b"p2", partition="p")
    puts += await gathered(merger, b"q1", partition="q")
    server.gate.set()
    await asyncio.gather(first, *puts)
    assert server.pushed == [[b"first"], [b"p1", b"p2", b"q1"], [b"p1", b"p2"], [b"q1"]]
    server.pushed.clear()
    server.gate.clear()
    again = await gathered(merger, b"p3", partition="p")
    again += await gathered(merger, b"q2", partition="q")
    again += await gathered(merger, b"p4", partition="p")
    await asyncio.sleep(0)
    assert server.pushed == [[b"p3"], [b"q2"]]  # neither waits for the other
    server.gate.set()
    await asyncio.gather(*again)
    assert server.pushed == [[b"p3"], [b"q2"], [b"p4"]]


async def test_a_bad_message_does_not_make_a_queue_ordered() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    puts = await gathered(merger, b"bad", partition="p")
    puts += await gathered(merger, b"q1", partition="q")
    server.gate.set()
    await asyncio.gather(first, *puts, return_exceptions=True)
    server.arrived.clear()
    first = await under_way(server, merger)
    server.pushed.clear()
    puts = await gathered(merger, b"p2", partition="p")
    puts += await gathered(merger, b"q2", partition="q")
    server.gate.set()
    await asyncio.gather(first, *puts)
    assert server.pushed == [[b"p2", b"q2"]]


async def test_a_request_holds_no_more_than_its_limits() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    many = await gathered(merger, *[b"x"] * (3 * MERGED_MESSAGES))
    large = await gathered(merger, *[b"x" * 60_000] * 20)
    server.gate.set()
    await asyncio.gather(first, *many, *large)
    assert max(map(len, server.pushed)) == MERGED_MESSAGES
    assert max(sum(map(len, payloads)) for payloads in server.pushed) <= MERGED_BYTES


async def test_what_waits_is_bounded_and_who_comes_too_late_waits_for_room() -> None:
    server = Server()
    merger = Merger(server.push, pending_bytes_max=1_000)
    first = await under_way(server, merger)
    puts = await gathered(merger, *[b"x" * 300] * 5)
    assert merger.pending_bytes <= 1_000
    server.gate.set()
    await asyncio.gather(first, *puts)
    assert merger.pending_bytes == 0
    assert sum(map(len, server.pushed)) == 6


async def test_who_leaves_before_it_was_sent_takes_it_along() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    stays, leaves = await gathered(merger, b"stays", b"leaves")
    leaves.cancel()
    await asyncio.wait([leaves])
    server.gate.set()
    await first
    assert await stays == [2]
    assert server.pushed == [[b"first"], [b"stays"]]


async def test_who_leaves_while_it_is_under_way_leaves_the_others_alone() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    first.cancel()
    await asyncio.wait([first])
    (other,) = await gathered(merger, b"other")
    server.gate.set()
    assert await other == [2]


async def test_closing_tells_whoever_waits() -> None:
    server = Server()
    merger = Merger(server.push)
    first = await under_way(server, merger)
    (second,) = await gathered(merger, b"second")
    await merger.close()
    for put in (first, second):
        with pytest.raises(Unavailable, match="closed"):
            await put


async def test_a_lane_survives_what_should_not_happen() -> None:
    server = Server()
    merger = Merger(server.push)
    server.error = LeaseLost("what is this", ids=[1])
    with pytest.raises(LeaseLost):
        await ids(merger, [Message(b"a")])
    server.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await ids(merger, [Message(b"a")])
    server.error = None
    assert await ids(merger, [Message(b"a")]) == [1]


def test_large_puts_go_by_themselves() -> None:
    async def never(queue: str, messages: Sequence[Message | bytes]) -> Written:
        raise AssertionError(queue, messages)

    merger = Merger(never)
    assert merger.takes([Message(b"x")] * SMALL_MESSAGES)
    assert not merger.takes([Message(b"x")] * (SMALL_MESSAGES + 1))
    assert not merger.takes([Message(b"x" * 100_000)])


@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.data())
def test_a_part_of_a_block_has_the_ids_that_it_has_in_the_whole(
    total: int, chosen: set[int], data: st.DataObject
) -> None:
    duplicates = {index: 1_000 + index for index in chosen if index < total}
    whole = Appended(50, total - len(duplicates), duplicates)
    begin = data.draw(st.integers(0, total))
    end = data.draw(st.integers(begin, total))
    part = part_of(whole, begin, end)
    assert part.ids() == whole.ids()[begin:end]
    assert set(part.duplicates) == {index - begin for index in duplicates if begin <= index < end}
