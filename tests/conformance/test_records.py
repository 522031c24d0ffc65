"""Records: small values beside the blocks, which change with the blocks and outcomes of their commit."""

from __future__ import annotations

import asyncio

import pytest

from forebay.log.records import RECORDS_BYTES_MAX, RECORDS_MAX, VALUE_BYTES_MAX
from forebay.log.seam import VersionConflict
from forebay.log.values import Group, Kept, Queue, Record
from forebay.model import Conflict, Rejected, TooLarge, UnknownQueue, mint
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    DAY_SECONDS,
    SECOND,
    append_of,
    finish,
    push,
    push_named,
    stored,
    take_one,
)


async def made(rig: Rig) -> tuple[Queue, Group]:
    """A queue and its group."""
    queue = await rig.log.create_queue("q")
    return queue, await rig.log.create_group(queue, "g")


async def put(
    rig: Rig, key: str, value: bytes | None = b"v", *, space: str = "s", version: int | None = None
) -> None:
    """Write one record."""
    await rig.log.commit(records=[Record(space, key, value, version=version)])


async def value_of(rig: Rig, key: str, *, space: str = "s") -> bytes | None:
    """The value of one record, if it is there."""
    found = await rig.log.records(space, [key])
    return found[0].value if found else None


async def keys(rig: Rig, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
    """The keys that a scan brings."""
    return [kept.key for kept in await rig.log.scan("s", prefix, after=after, limit=limit)]


async def test_what_is_written_is_read(rig: Rig) -> None:
    later = rig.clock.now() + SECOND
    await rig.log.commit(records=[Record("s", "a", b"1"), Record("s", "b", b"", later)])
    expected = [Kept("b", b"", 1, rig.clock.now(), later), Kept("a", b"1", 1, rig.clock.now(), None)]
    assert await rig.log.records("s", ["b", "nobody", "a"]) == expected
    assert await rig.log.records("s", []) == []
    assert await rig.log.scan("s") == expected[::-1]


async def test_spaces_are_apart(rig: Rig) -> None:
    await put(rig, "k", b"1", space="one")
    await put(rig, "k", b"2", space="two")
    await put(rig, "k", None, space="three")
    assert [await value_of(rig, "k", space=space) for space in ("one", "two", "three")] == [b"1", b"2", None]
    assert await rig.log.scan("on") == []


async def test_each_write_is_another_version(rig: Rig) -> None:
    await put(rig, "k", b"1")
    rig.clock.advance(seconds=1)
    await put(rig, "k", b"2")
    assert await rig.log.records("s", ["k"]) == [Kept("k", b"2", 2, rig.clock.now(), None)]
    await put(rig, "k", None)
    assert await rig.log.records("s", ["k"]) == []
    await put(rig, "k", b"3")
    assert [kept.version for kept in await rig.log.records("s", ["k"])] == [1]


async def test_a_version_that_was_expected_must_be_there(rig: Rig) -> None:
    await put(rig, "k", b"1", version=0)
    await put(rig, "k", b"2", version=1)
    for version in (0, 1, 3):
        with pytest.raises(VersionConflict, match="is at version 2") as refused:
            await put(rig, "k", b"3", version=version)
        assert (refused.value.space, refused.value.key, refused.value.found) == ("s", "k", 2)
    await put(rig, "k", None, version=2)
    with pytest.raises(VersionConflict, match="isn't there"):
        await put(rig, "k", None, version=2)
    await put(rig, "k", None, version=0)
    await put(rig, "k", None)
    assert await value_of(rig, "k") is None


async def test_an_expired_record_is_not_there(rig: Rig) -> None:
    await rig.log.commit(records=[Record("s", "k", b"1", rig.clock.now() + SECOND)])
    await put(rig, "other")
    rig.clock.advance(seconds=1)
    assert await rig.log.records("s", ["k"]) == []
    assert await keys(rig) == ["other"]
    with pytest.raises(VersionConflict, match="isn't there"):
        await put(rig, "k", b"2", version=1)
    await put(rig, "k", b"2", version=0)
    assert await rig.log.records("s", ["k"]) == [Kept("k", b"2", 1, rig.clock.now(), None)]


async def test_a_write_decides_anew_when_a_record_expires(rig: Rig) -> None:
    await rig.log.commit(records=[Record("s", "k", b"1", rig.clock.now() + SECOND)])
    await put(rig, "k", b"2")
    rig.clock.advance(seconds=2)
    assert await value_of(rig, "k") == b"2"


async def test_trim_removes_what_has_expired(rig: Rig) -> None:
    at = rig.clock.now() + SECOND
    await rig.log.commit(records=[Record("s", f"k{n}", b"", at) for n in range(1_500)])
    await rig.log.commit(records=[Record("s", "later", b"", at + 1), Record("s", "never", b"")])
    rig.clock.advance(seconds=1)
    assert (await rig.log.trim()).records == 1_500
    assert (await rig.log.trim()).records == 0
    assert await keys(rig) == ["later", "never"]


async def test_a_scan_is_in_the_order_of_bytes(rig: Rig) -> None:
    names = [
        "a",
        "B",
        "ab",
        "a b",
        "é",
        "e",
        "z",
        "\uff5a",
        "😀",
        "ÿ",
        "\ud7ff",
        "\ue000",
        "~",
        "a\n",
        "Ä",
        "ä",
    ]
    await rig.log.commit(records=[Record("s", name, b"") for name in names])
    expected = sorted(names, key=str.encode)
    assert await keys(rig) == expected
    paged: list[str] = []
    while page := await keys(rig, after=paged[-1] if paged else "", limit=3):
        paged.extend(page)
    assert paged == expected


async def test_a_scan_brings_what_begins_with_its_prefix(rig: Rig) -> None:
    last = "\U0010ffff"
    names = [
        "a",
        "a/",
        "a/1",
        "a/2",
        "a/2/",
        "a0",
        "b",
        "\ud7ff1",
        "\ue000",
        f"a{last}",
        f"a{last}{last}x",
        last,
    ]
    await rig.log.commit(records=[Record("s", name, b"") for name in names])
    for prefix in ["", "a", "a/", "a/2", "c", "\ud7ff", f"a{last}", last, last * 2]:
        assert await keys(rig, prefix) == sorted(name for name in names if name.startswith(prefix))
    assert await keys(rig, "a/", after="a/1") == ["a/2", "a/2/"]
    assert await keys(rig, "a/", after="A", limit=1) == ["a/"]
    assert await keys(rig, "a/", after="b") == []


async def test_a_record_comes_with_its_block(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "in")
    claim = await take_one(rig.log, group)
    receipt = await rig.log.commit(
        [append_of(queue, "out")], [claim.settle_all()], records=[Record("s", "k", b"1")]
    )
    assert [appended.count for appended in receipt.appended] == [1]
    assert await stored(rig.log, queue) == ["in", "out"]
    assert await value_of(rig, "k") == b"1"
    assert await rig.log.recall(group, [claim.token]) == []


async def test_a_settlement_that_comes_too_late_leaves_no_record(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "in")
    claim = await take_one(rig.log, group)
    await finish(rig.log, claim)
    with pytest.raises(Conflict, match="came too late"):
        await rig.log.commit(
            [append_of(queue, "out")], [claim.settle_all()], records=[Record("s", "k", b"1")]
        )
    assert await stored(rig.log, queue) == ["in"]
    assert await value_of(rig, "k") is None


async def test_a_record_that_is_refused_takes_all_else_with_it(rig: Rig) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "in")
    claim = await take_one(rig.log, group)
    records = [Record("s", "a", b"1"), Record("s", "k", b"1", version=7)]
    out = append_of(queue, "out", transaction_ids=["t"])
    with pytest.raises(VersionConflict):
        await rig.log.commit([out], [claim.settle_all()], records=records)
    assert await stored(rig.log, queue) == ["in"]
    assert await rig.log.scan("s") == []
    assert await rig.log.recall(group, [claim.token]) == [claim]
    receipt = await rig.log.commit([out], [claim.settle_all()], records=records[:1])
    assert not receipt.appended[0].known
    assert await stored(rig.log, queue) == ["in", "out"]


async def test_duplicates_are_left_out_and_the_record_written_once(rig: Rig) -> None:
    queue, _ = await made(rig)
    await push_named(rig.log, queue, "t1")
    append = append_of(queue, "t1", "t2", transaction_ids=["t1", "t2"])
    receipt = await rig.log.commit([append], records=[Record("s", "k", b"1", version=0)])
    assert list(receipt.appended[0].duplicates) == [0]
    assert [kept.version for kept in await rig.log.records("s", ["k"])] == [1]


async def test_a_queue_that_is_gone_leaves_no_record(rig: Rig) -> None:
    queue, _ = await made(rig)
    await rig.log.delete_queue("q")
    with pytest.raises(UnknownQueue):
        await rig.log.commit([append_of(queue, "out")], records=[Record("s", "k", b"1")])
    assert await value_of(rig, "k") is None


async def test_a_queue_that_is_deleted_leaves_its_records(rig: Rig) -> None:
    queue, _ = await made(rig)
    await rig.log.commit([append_of(queue, "out")], records=[Record("s", "k", b"1")])
    await rig.log.delete_queue("q")
    assert await value_of(rig, "k") == b"1"


@pytest.mark.parametrize("parts", ["records", "appends", "settlements", "all"])
async def test_a_repeated_id_is_one_write(rig: Rig, parts: str) -> None:
    queue, group = await made(rig)
    await push(rig.log, queue, "in")
    claim = await take_one(rig.log, group)
    appends = [append_of(queue, "out")] if parts in {"appends", "all"} else []
    settlements = [claim.settle_all()] if parts in {"settlements", "all"} else []
    commit_id, records = mint(), [Record("s", "k", b"1", version=0), Record("s", "gone", None)]

    first = await rig.log.commit(appends, settlements, id=commit_id, records=records)
    await put(rig, "gone", b"meanwhile")
    again = await rig.log.commit(appends, settlements, id=commit_id, records=records)

    assert [a.ids() for a in again.appended] == [a.ids() for a in first.appended]
    assert (list(first.conflicts), list(again.conflicts)) == ([], [])
    assert [kept.version for kept in await rig.log.records("s", ["k"])] == [1]
    assert await value_of(rig, "gone") == b"meanwhile"


async def test_an_id_that_was_refused_may_be_used_again(rig: Rig) -> None:
    commit_id = mint()
    with pytest.raises(VersionConflict):
        await rig.log.commit(id=commit_id, records=[Record("s", "k", b"1", version=1)])
    await rig.log.commit(id=commit_id, records=[Record("s", "k", b"1", version=0)])
    assert await value_of(rig, "k") == b"1"


async def test_of_concurrent_writers_exactly_one_wins(rig: Rig) -> None:
    async def write(name: str, version: int) -> bool:
        try:
            await put(rig, "k", name.encode(), version=version)
        except VersionConflict as refused:
            return refused.found != version + 1
        return True

    for version in range(5):
        won = await asyncio.gather(*(write(f"{version}-{n}", version) for n in range(10)))
        assert sum(won) == 1
        (kept,) = await rig.log.records("s", ["k"])
        assert (kept.value, kept.version) == (f"{version}-{won.index(True)}".encode(), version + 1)


async def test_counters_that_many_raise_lose_nothing(rig: Rig) -> None:
    async def add() -> None:
        while True:
            found = await rig.log.records("s", ["a", "b"])
            a, b = found or (Kept("a", b"0", 0, 0, None), Kept("b", b"0", 0, 0, None))
            up = [Record("s", k.key, b"%d" % (int(k.value) + 1), version=k.version) for k in (b, a)]
            try:
                await rig.log.commit(records=up)
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(add() for _ in range(8)))
    assert [kept.value for kept in await rig.log.records("s", ["a", "b"])] == [b"8", b"8"]


async def test_many_at_once(rig: Rig) -> None:
    records = [Record("s", f"{n:05}", b"%d" % n) for n in range(RECORDS_MAX)]
    await rig.log.commit(records=records[::-1])
    found = await rig.log.records("s", [record.key for record in records])
    assert [kept.value for kept in found] == [record.value for record in records]
    assert await keys(rig, after="19997") == ["19998", "19999"]


async def test_the_largest_value(rig: Rig) -> None:
    value = bytes(range(256)) * (VALUE_BYTES_MAX // 256)
    await put(rig, "k" * 1_024, value, space="s" * 64)
    assert await value_of(rig, "k" * 1_024, space="s" * 64) == value


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([Record("s", "k", b"1"), Record("s", "k", None)], Rejected),
        ([Record("s", "", b"")], Rejected),
        ([Record("", "k", b"")], Rejected),
        ([Record("s", "k\0", b"")], Rejected),
        ([Record("s", "\ud800", b"")], Rejected),
        ([Record("s", "k" * 1_025, b"")], TooLarge),
        ([Record("s", "é" * 513, b"")], TooLarge),
        ([Record("s" * 65, "k", b"")], TooLarge),
        ([Record("s", "k", bytes(VALUE_BYTES_MAX + 1))], TooLarge),
        ([Record("s", "k", b"", -1)], Rejected),
        ([Record("s", "k", b"", version=-1)], Rejected),
        ([Record("s", str(n), b"") for n in range(RECORDS_MAX + 1)], TooLarge),
        (
            [
                Record("s", str(n), bytes(VALUE_BYTES_MAX))
                for n in range(RECORDS_BYTES_MAX // VALUE_BYTES_MAX + 1)
            ],
            TooLarge,
        ),
    ],
)
async def test_what_cannot_be_a_record_is_rejected(
    rig: Rig, records: list[Record], error: type[Rejected]
) -> None:
    queue, _ = await made(rig)
    with pytest.raises(error):
        await rig.log.commit([append_of(queue, "out")], records=[Record("s", "good", b""), *records])
    assert await rig.log.scan("s") == []
    assert await stored(rig.log, queue) == []


async def test_what_cannot_be_looked_for_is_rejected(rig: Rig) -> None:
    for space, key in [("", "k"), ("s", "\0"), ("s", "k" * 1_025)]:
        with pytest.raises(Rejected):
            await rig.log.records(space, [key])
        with pytest.raises(Rejected):
            await rig.log.scan(space, key)
    for limit in (0, 10_001):
        with pytest.raises(Rejected):
            await rig.log.scan("s", limit=limit)
    with pytest.raises(TooLarge):
        await rig.log.records("s", ["k"] * (RECORDS_MAX + 1))


async def test_records_outlive_the_process(durable_rig: Rig) -> None:
    rig = durable_rig
    commit_id, record = mint(), Record("s", "k", b"1", rig.clock.now() + DAY_SECONDS * SECOND, version=0)
    await rig.log.commit(id=commit_id, records=[record])
    before = await rig.log.scan("s")
    await rig.reopen()
    assert await rig.log.scan("s") == before
    await rig.log.commit(id=commit_id, records=[record])
    assert await rig.log.scan("s") == before
