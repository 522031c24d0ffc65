"""What blocks add up to, and the five families that are made of it."""

from __future__ import annotations

from forebay.log.memory import MemoryLog
from forebay.log.values import Append, Death, Deferral, Position, Stats
from forebay.model import ManualClock, Message, bitmap
from forebay.observe.document import Document, Family
from forebay.observe.labels import LabelSettings
from forebay.spark.snapshot.compare import Difference, compare_books, compare_documents, lasting
from forebay.spark.snapshot.counts import Counts, Key, decode_counts, encode_counts, rich_families
from forebay.spark.snapshot.recompute import Recomputed, recompute

SECOND = 1_000_000
START = 1_000_000 * SECOND


def families(found: Recomputed) -> dict[str, dict[tuple[str, ...], float]]:
    made = rich_families(found.counts, found.survey.purged)
    return {family.name.removeprefix("forebay_"): dict(family.series) for family in made}


async def test_attempts_have_their_status_and_code_and_what_was_given_back_is_none() -> None:
    clock = ManualClock(START)
    async with MemoryLog(clock=clock) as log:
        queue = await log.create_queue("shop.orders")
        group = await log.create_group(queue, "hook")
        await log.commit([Append.of(queue, [b"a", b"b", b"c"])])
        (claim,) = (await log.claim(group, "me")).claims
        back = (Deferral(0, START + SECOND, 1), Deferral(1, START, 0))
        await log.commit(settlements=[claim.settle(deferred=back, code=503, done=bitmap.of([2], 3))])
        clock.advance(seconds=2)
        claims = (await log.due(group, "me")).claims
        by_first = {each.first - claim.first: each for each in claims}
        death = Death(0, "gone", 2, Message(b"a"))
        await log.commit(
            settlements=[
                by_first[0].settle(dead=(death,), code=410),
                by_first[1].settle(done=b"\1", code=200),
            ]
        )
        found = families(await recompute(log, LabelSettings()))
    assert found["event_delivery_attempts"] == {
        ("shop", "hook", "delayed", "503"): 1,
        ("shop", "hook", "done", "503"): 1,
        ("shop", "hook", "dead", "410"): 1,
        ("shop", "hook", "done", "200"): 1,
    }


async def test_the_oldest_is_what_waits_retries_that_are_due_included() -> None:
    clock = ManualClock(START)
    async with MemoryLog(clock=clock) as log:
        queue = await log.create_queue("shop.orders")
        group = await log.create_group(queue, "hook")
        await log.commit([Append.of(queue, [b"a"])])
        (claim,) = (await log.claim(group, "me")).claims
        await log.commit(settlements=[claim.settle(deferred=(Deferral(0, START + 10 * SECOND, 1),))])
        clock.advance(seconds=5)
        early = await recompute(log, LabelSettings())
        assert families(early)["event_delivery_queue_oldest_age_seconds"] == {}
        clock.advance(seconds=15)
        await log.commit([Append.of(queue, [b"b"])])
        late = await recompute(log, LabelSettings(), before=early)
        assert late.counts == (await recompute(log, LabelSettings())).counts
        assert families(late)["event_delivery_queue_oldest_age_seconds"] == {
            ("shop", "hook", ""): START / SECOND + 10
        }
        (claim,) = (await log.due(group, "me")).claims
        await log.mark([claim.mark(handed=b"\1")])
        taken = await recompute(log, LabelSettings(), before=late)
        assert families(taken)["event_delivery_queue_oldest_age_seconds"] == {
            ("shop", "hook", ""): START / SECOND + 20
        }


async def test_what_was_passed_is_done_unless_it_was_skipped() -> None:
    async with MemoryLog(clock=ManualClock(START)) as log:
        queue = await log.create_queue("q")
        reader, worker = await log.create_group(queue, "reader"), await log.create_group(queue, "worker")
        await log.commit([Append.of(queue, [b"a", b"b"])])
        await log.advance(reader, 3)
        await log.seek(worker, Position(3))
        found = families(await recompute(log, LabelSettings()))["event_delivery_queue"]
    assert {(key[2], key[3]): number for key, number in found.items()} == {
        ("reader", "done"): 2,
        ("worker", "cancelled"): 2,
    }


def test_missing_and_empty_labels_are_one_series_and_many_fold_into_other() -> None:
    many: dict[Key, int] = {(f"p{n}", "", "ready"): n + 1 for n in range(3_000)}
    (events, *_) = rich_families(Counts(events=many))
    assert len(events.series) == 3_000
    (events, *_) = rich_families(Counts(events=many), series_max=1_000)
    assert len(events.series) == 1_000
    assert events.folded == 2_001
    assert sum(number for _, number in events.series) == sum(many.values())
    assert dict(events.series)["other", "other", "other"] == sum(range(1, 2_002))


def test_counts_are_written_and_read_without_loss() -> None:
    counts = Counts({("a", "", "ready"): 1}, {}, {}, {("a", ""): 5}, {}, {("1", "ready"): 1}, 7)
    assert decode_counts(encode_counts(counts)) == counts


def document(number: float) -> Document:
    made = Family(name="x", kind="gauge", help="", labels=("a",), series=[(("1",), number)])
    return Document(taken_at=0.0, families=[made])


def test_what_moves_while_it_is_compared_is_no_difference() -> None:
    assert compare_documents(document(1), document(5), document(3)) == []
    (found,) = compare_documents(document(1), document(2), document(3))
    assert found == Difference("recomputation", "x", {"a": "1"}, 2, 3)
    assert lasting([[found], []]) == []
    assert lasting([[found], [found]]) == [found]


async def test_the_books_of_the_store_are_compared_by_group() -> None:
    async with MemoryLog(clock=ManualClock(START)) as log:
        queue = await log.create_queue("q")
        group = await log.create_group(queue, "g")
        await log.commit([Append.of(queue, [b"a", b"b"])])
        stats: Stats = await log.stats()
        counts = (await recompute(log, LabelSettings())).counts
    assert compare_books(counts, counts, stats, ["q"]) == []
    wrong = Counts(books={(str(group.number), "ready"): 1})
    (found,) = compare_books(wrong, wrong, stats, ["q"])
    assert (found.against, found.labels["group"], found.folded, found.expected) == ("counters", "g", 1, 2)
    assert compare_books(wrong, wrong, stats, ["other"]) == []
