"""Letters are taken once, also by two programs that run one flow."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay.log.values import Append, Death, Room
from forebay.model import Message
from forebay.spark.logs import Face, close_all

pytest.importorskip("pyspark")

from forebay.app.opening import open_log
from forebay.spark.flows import letters
from forebay.spark.flows.batch import Made
from forebay.spark.flows.keeping import Moved
from forebay.spark.flows.letters import LetterFlow
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.values import FlowSpec, LetterSource, QueueSink

FLOW = FlowSpec(
    name="again", type="ON_ERROR_DATA_SOURCE", source=LetterSource(dead="in"), sink=QueueSink(queue="out")
)


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """Give a log with a dead letter, and flows whose rows come to nothing."""
    monkeypatch.setattr(letters, "frame_of", lambda *_: None)
    monkeypatch.setattr(letters, "make", lambda *_: Made((), ()))
    around = Surroundings(
        opener=open_log, url=f"sqlite:///{tmp_path / 'f.db'}", credentials={}, checkpoints=tmp_path,
        folder=tmp_path,
    )  # fmt: skip
    opened = around.face()
    bury(opened)
    yield around
    close_all()


def bury(opened: Face) -> None:
    queue = opened(opened.log.create_queue("in"))
    group = opened(opened.log.create_group(queue, "g"))
    opened(opened.log.commit([Append.of(queue, [Message(b"bad")])]))
    opened(opened.log.heartbeat("w"))
    (claim,) = opened(opened.log.claim(group, "w", Room(10, 1 << 20))).claims
    opened(opened.log.commit(settlements=[claim.settle(dead=(Death(0, "it fails", 1, Message(b"bad")),))]))


def flow(around: Surroundings) -> LetterFlow:
    spark: Any = None
    return LetterFlow(spark, FLOW, around, FlowNumbers())


def test_of_two_programs_that_found_a_letter_one_takes_it(around: Surroundings) -> None:
    first, second = flow(around), flow(around)
    log = around.face().log
    found = [around.face()(each._new(log, 10)) for each in (first, second)]
    assert [len(taken) for taken, _ in found] == [1, 1]
    first._take(*found[0])
    with pytest.raises(Moved, match="another program"):
        second._take(*found[1])
    assert around.face()(second._new(log, 10)) == ([], [])


def test_the_record_of_a_letter_goes_with_it(around: Surroundings) -> None:
    opened, running = around.face(), flow(around)
    running(1)
    (kept,) = opened(opened.log.scan(letters.SPACE, ""))
    group = opened(opened.log.groups(opened(opened.log.queue("in"))))[0]
    opened(opened.log.purge(group, [int(kept.key.rpartition("/")[2])]))
    running(2)
    assert opened(opened.log.scan(letters.SPACE, "")) == []


def test_a_letter_that_another_program_takes_meanwhile_keeps_its_record(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, first, second = around.face(), flow(around), flow(around)
    log = opened.log
    found = opened(first._new(log, 10))
    reads: list[str] = []

    async def in_between(name: str, read: Any, *given: Any, **named: Any) -> Any:
        answer = await read(*given, **named)
        reads.append(name)
        if len(reads) == 1:
            records = [first._record(each) for each in found[0]]
            await log.publish("s", [], records=records)
        return answer

    with monkeypatch.context() as patch:
        for name in ("scan", "dead_letters"):
            patch.setattr(log, name, partial(in_between, name, getattr(log, name)))
        taken, gone = opened(second._new(log, 10))
    assert (len(taken), gone, reads) == (1, [], ["scan", "dead_letters"])
    with pytest.raises(Moved):
        second._take(taken, gone)


def test_letters_and_records_are_compared_page_by_page(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "PAGE", 2)
    opened, running = around.face(), flow(around)
    for _ in range(6):
        bury(opened)
    group = opened(opened.log.groups(opened(opened.log.queue("in"))))[0]
    ids = [letter.message_id for letter in opened(opened.log.dead_letters(group))]
    taken, _ = opened(running._new(opened.log, 3))
    running._take(taken, [])
    assert [each.letter.message_id for each in taken] == ids[:3]
    opened(opened.log.purge(group, ids[:2]))
    running._looked.clear()
    taken, gone = opened(running._new(opened.log, 10))
    assert [each.letter.message_id for each in taken] == ids[3:]
    assert [int(record.key.rpartition("/")[2]) for record in gone] == ids[:2]
    running._take(taken, gone)
    running._looked.clear()
    assert opened(running._new(opened.log, 10)) == ([], [])
