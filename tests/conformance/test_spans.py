"""Reading one partition of an ordered queue, and from where to where partitions are kept."""

from __future__ import annotations

import pytest

from forebay.log.values import Span
from forebay.model import Message, Rejected, UnknownQueue, sequence_of
from tests.conformance.rigs import Rig
from tests.conformance.steps import DAY_SECONDS, SECOND, push


async def test_a_span_goes_from_the_first_message_to_the_last(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    begin = rig.clock.now()
    first = await push(rig.log, queue, "1", "2", partition="p")
    other = await push(rig.log, queue, "else", partition="")
    rig.clock.advance(seconds=5)
    last = await push(rig.log, queue, "3", "4", partition="p")
    found = await rig.log.spans(queue)
    end = begin + 5 * SECOND
    assert found.at == end
    assert found.spans == [
        Span("", other.first, other.first, begin, begin),
        Span("p", first.first, last.first + 1, begin, end),
    ]


async def test_named_partitions_come_as_they_are_named_and_those_without_messages_do_not(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    another = await rig.log.create_queue("another", {"ordered": True})
    for name in ("a", "b", "c"):
        await push(rig.log, queue, "1", partition=name)
    await push(rig.log, another, "1", partition="z")
    found = await rig.log.spans(queue, ["c", "z", "a", "nothing"])
    assert [span.partition for span in found.spans] == ["c", "a"]
    assert (await rig.log.spans(queue, [])).spans == []


async def test_partitions_are_listed_page_by_page_from_the_one_without_a_name(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    another = await rig.log.create_queue("another", {"ordered": True})
    names = ["", "a", "b", "ä", "€"]
    for name in reversed(names):
        await push(rig.log, queue, "1", partition=name)
        await push(rig.log, another, "1", partition=name + "!")
    seen: list[str] = []
    after: str | None = None
    while page := (await rig.log.spans(queue, after=after, limit=2)).spans:
        seen += [span.partition for span in page]
        after = seen[-1]
    assert seen == names


async def test_what_was_dropped_is_in_no_span(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True, "expire_seconds": DAY_SECONDS})
    await push(rig.log, queue, "1", partition="old")
    await push(rig.log, queue, "2", partition="both")
    rig.clock.advance(seconds=3 * DAY_SECONDS)
    kept = await push(rig.log, queue, "3", partition="both")
    await rig.log.trim()
    (span,) = (await rig.log.spans(queue)).spans
    assert (span.partition, span.first, span.last) == ("both", kept.first, kept.first)
    assert (await rig.log.spans(queue, ["old"])).spans == []
    assert await rig.log.read(queue, partition="old") == []


async def test_an_unordered_queue_has_no_spans_and_one_that_is_gone_is_unknown(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    await push(rig.log, queue, "1", partition="p")
    assert (await rig.log.spans(queue)).spans == []
    assert (await rig.log.spans(queue, ["p"])).spans == []
    assert await rig.log.read(queue, partition="p") == []
    await rig.log.delete_queue("q")
    with pytest.raises(UnknownQueue):
        await rig.log.spans(queue)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_spans_are_bounded(rig: Rig, limit: int) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    with pytest.raises(Rejected, match="at once"):
        await rig.log.spans(queue, limit=limit)
    with pytest.raises(Rejected, match="at once"):
        await rig.log.spans(queue, ["p"] * 10_001)


async def test_one_partition_is_read_without_the_others(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"ordered": True})
    mine = []
    for turn in range(5):
        mine.append(await push(rig.log, queue, f"{turn}a", f"{turn}b", partition="p"))
        await push(rig.log, queue, "else", partition="q")
    blocks = await rig.log.read(queue, partition="p")
    assert [block.first for block in blocks] == [one.first for one in mine]
    assert {block.partition for block in blocks} == {"p"}
    assert blocks[2].decode().message(1) == Message(b"2b", "p")
    second = sequence_of(mine[1].first) + 1
    later = await rig.log.read(queue, second, messages=4, partition="p")
    assert [block.first for block in later] == [mine[1].first, mine[2].first]
    assert len(await rig.log.read(queue, bytes=1, partition="p")) == 1
    assert await rig.log.read(queue, partition="nothing") == []
