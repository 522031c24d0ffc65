"""What happens to a block on its way in: duplicates, their bookkeeping, and the answer."""

from collections.abc import Sequence

import pytest

from forebay.log.intake import Answer, Intake, find_links, leave_to_earlier, resolve
from forebay.log.values import Append, Queue, QueueSettings
from forebay.model import Block, Conflict, Limits, Message, Rejected, decode, pack

QUEUE = Queue(3, "orders", QueueSettings(), 0)
ORDERED = Queue(4, "lanes", QueueSettings(ordered=True), 0)


def intake_of(*transaction_ids: str | None, queue: Queue = QUEUE, partitions: Sequence[str] = ()) -> Intake:
    """A block with these transaction ids, whose payloads are its indexes."""
    messages = [
        Message(str(i).encode(), partitions[i] if partitions else "", transaction_id)
        for i, transaction_id in enumerate(transaction_ids)
    ]
    return Intake(Append.of(queue, Block.of(messages)), queue, Limits())


def offered(intake: Intake) -> list[int]:
    """Which messages the next attempt offers; body and columns must agree."""
    assert decode(intake.body) == intake.block
    if intake.digests is not None:
        assert len(intake.digests) == len(intake.block)
    return [int(payload) for payload in intake.block.payloads]


def known(intake: Intake, first: int) -> Answer:
    """What the log answers when the block comes again."""
    return Answer(first, len(intake.block), known=True, dropped=intake.dropped)


def test_without_transaction_ids_there_is_nothing_to_look_up() -> None:
    intake = intake_of(None, None)
    assert intake.digests is None
    assert intake.dropped is None


def test_only_messages_with_a_transaction_id_have_a_digest() -> None:
    digests = intake_of(None, "a", None, "b").digests
    assert digests is not None
    assert [digest is None for digest in digests] == [True, False, True, False]
    assert {len(digest) for digest in digests if digest} == {16}


def test_a_digest_stands_for_queue_partition_and_transaction_id() -> None:
    other = Queue(5, "other", QueueSettings(), 0)
    found = {
        tuple(intake.digests or ())
        for intake in (
            intake_of("a"),
            intake_of("a", queue=other),
            intake_of("a", partitions=["p"]),
            intake_of("p:a"),
            intake_of("1:p:a"),
        )
    }
    assert len(found) == 5
    assert intake_of("a").digests == intake_of("a").digests


def test_a_window_of_zero_means_no_digests() -> None:
    queue = Queue(3, "orders", QueueSettings(dedupe_seconds=0), 0)
    assert intake_of("a", "a", queue=queue).digests is None


def test_repeats_within_the_block_are_left_out_at_once() -> None:
    intake = intake_of("a", "b", "a", None, "b", "a")
    assert offered(intake) == [0, 1, 3]
    appended = intake.appended(Answer(100, 3))
    assert appended.ids() == [100, 101, 100, 102, 101, 100]
    assert (appended.count, appended.known) == (3, False)


def test_what_the_log_knows_is_left_out_by_its_index_in_the_last_offer() -> None:
    intake = intake_of("a", "b", "a", "c", "d", "b")
    assert offered(intake) == [0, 1, 3, 4]
    intake.drop(((1, 55),))
    assert offered(intake) == [0, 3, 4]
    intake.drop(((0, 44), (2, 66)))
    assert offered(intake) == [3]
    assert intake.appended(Answer(100, 1)).ids() == [44, 55, 44, 100, 66, 55]


def test_everything_may_be_left_out() -> None:
    intake = intake_of("a", "b", "a")
    intake.drop(((0, 44), (1, 55)))
    assert offered(intake) == []
    appended = intake.appended(Answer(100, 0))
    assert (appended.ids(), appended.count) == ([44, 55, 44], 0)


def test_a_repeated_push_gets_the_answer_of_the_first() -> None:
    first = intake_of("a", "b", "a", "c")
    first.drop(((1, 55),))
    answer = known(first, pack(3, 9))
    again = intake_of("a", "b", "a", "c")
    appended = again.appended(answer)
    assert appended.ids() == first.appended(Answer(pack(3, 9), 2)).ids()
    assert appended.known


def test_a_block_id_of_another_block_is_a_conflict() -> None:
    answer = known(intake_of("a", "b", "a"), pack(3, 9))
    assert not intake_of("x", "y", "z").differs(answer)
    for other in (intake_of("a", "b"), intake_of("a", "b", "a", queue=ORDERED)):
        assert other.differs(answer)
        with pytest.raises(Conflict):
            other.appended(answer)


def test_an_ordered_queue_takes_one_partition_per_block() -> None:
    assert intake_of(None, None, queue=ORDERED, partitions=["p", "p"]).partition == "p"
    assert intake_of(None, queue=ORDERED).partition == ""
    assert intake_of(None, partitions=["p"]).partition is None
    with pytest.raises(Rejected, match="2 partitions"):
        intake_of(None, None, queue=ORDERED, partitions=["p", "q"])


def test_an_empty_block_is_rejected() -> None:
    with pytest.raises(Rejected):
        intake_of()


def test_an_answer_without_duplicates_is_a_range() -> None:
    appended = resolve(Answer(7, 3))
    assert (appended.ids(), dict(appended.duplicates)) == ([7, 8, 9], {})


def test_blocks_of_a_commit_leave_messages_to_earlier_ones() -> None:
    one, two = intake_of("a", "b", "a"), intake_of("c", "b", "a", "b")
    leave_to_earlier([one, two])
    assert (offered(one), offered(two)) == ([0, 1], [0])
    answers = [Answer(pack(3, 10), 2), Answer(pack(3, 12), 1)]
    links = find_links([one, two], answers)
    assert not two.has_noted(links[1])
    two.note(links[1])
    assert two.has_noted(find_links([one, two], answers)[1])
    ids = two.appended(answers[1]).ids()
    assert ids == [pack(3, n) for n in (12, 11, 10, 11)]


def test_a_link_holds_wherever_the_commit_is_written() -> None:
    one, two = intake_of("a", "b"), intake_of("b", "c")
    leave_to_earlier([one, two])
    two.note(find_links([one, two], [Answer(pack(3, 10), 2), Answer(pack(3, 12), 1)])[1])
    later = [Answer(pack(3, 70), 2), Answer(pack(3, 72), 1)]
    assert two.has_noted(find_links([one, two], later)[1])
    assert resolve(known(two, pack(3, 72))).ids() == [pack(3, 71), pack(3, 72)]


def test_a_link_follows_when_the_earlier_block_shrinks() -> None:
    one, two = intake_of("a", "b"), intake_of("b", "a")
    leave_to_earlier([one, two])
    two.note(find_links([one, two], [Answer(pack(3, 10), 2), Answer(pack(3, 12), 0)])[1])
    one.drop(((0, pack(3, 4)),))
    answers = [Answer(pack(3, 10), 1), Answer(pack(3, 11), 0)]
    links = find_links([one, two], answers)
    assert not two.has_noted(links[1])
    two.note(links[1])
    assert two.appended(answers[1]).ids() == [pack(3, 10), pack(3, 4)]


def test_a_link_to_a_block_that_was_written_before_is_an_id() -> None:
    one, two = intake_of("a"), intake_of("a")
    leave_to_earlier([one, two])
    answers = [known(one, pack(3, 2)), Answer(pack(3, 50), 0)]
    two.note(find_links([one, two], answers)[1])
    assert resolve(known(two, pack(3, 99))).ids() == [pack(3, 2)]


def test_without_shared_messages_there_are_no_links() -> None:
    one, two = intake_of("a"), intake_of("b")
    leave_to_earlier([one, two])
    assert find_links([one, two], [Answer(), Answer()]) == [{}, {}]
