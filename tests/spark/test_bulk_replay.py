"""Bulk replay: folders of many dead servers into one log, in order, once, whatever is repeated or killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.api.queen.options import facts_of
from forebay.app.cli import main
from forebay.log.values import Append
from forebay.model import Block, Message, SystemClock, format_id, from_datetime, mint
from forebay.spool.lines import SpooledBlock, encode_entry
from tests.original_lines import LINES
from tests.servers import environment
from tests.spark.queues import Shelf
from tests.spark.spools import block, payloads, replay, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_files_of_all_servers_go_in_by_their_time_and_only_once(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for number in range(6):
        write(folders[number % 2], ("q", block(number * 100, 50)), ("q", block(number * 100 + 50, 50)))
    done = replay(spark, shelf, folders)
    assert (done.files, done.events, done.written) == (6, 600, {"q": 600})
    assert payloads(shelf) == list(range(600))
    again = replay(spark, shelf, folders)
    assert (again.files_known, again.messages) == (6, 0)
    # A file that went in, and one more beside it.
    write(folders[0], ("q", block(600, 10)))
    assert replay(spark, shelf, [folders[0]]).written == {"q": 10}
    assert payloads(shelf) == list(range(610))


def test_blocks_that_are_in_already_are_known_as_plain_replay_knows_them(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    blocks = [block(n * 10, 10) for n in range(4)]
    shelf, queue = file_shelf, file_shelf.queue("q")
    shelf(shelf.log.commit([Append.of(queue, blocks[0])]))
    write(tmp_path / "a", *(("q", each) for each in blocks[:2]))
    write(tmp_path / "b", ("q", blocks[1]), ("q", blocks[2]))
    done = replay(spark, shelf, [tmp_path / "a", tmp_path / "b"])
    assert (done.messages, done.known) == (20, 20)
    assert main(["spool", "replay", str(tmp_path / "a"), "--store", shelf.url, "--keep"]) == 0
    assert payloads(shelf) == list(range(30))


def test_a_damaged_copy_of_a_block_that_is_in_whole_keeps_nothing_else_out(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    whole = block(0, 10)
    shelf(shelf.log.commit([Append.of(shelf.queue("q"), whole)]))
    lines = encode_entry(SpooledBlock("q", whole)).splitlines(keepends=True)
    lines[4] = b"nonsense\n"
    write(tmp_path / "a", ("q", block(10, 10)), bad=b"".join(lines))
    write(tmp_path / "a", ("q", block(20, 10)))
    done = replay(spark, shelf, [tmp_path / "a"])
    assert (done.messages, done.damaged, done.refused) == (20, 1, 0)
    assert payloads(shelf) == list(range(30))


ORIGINAL = (
    '{{"queue":"q","partition":"p{part}","payload":{n},"transaction_id":{id},"trace_id":"",'
    '"namespace":"","task":""}}\n'
)


def original(folder: Path, numbers: Sequence[int], *, named: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"failover_{format_id(mint())}.buf"
    lines = [ORIGINAL.format(part=n % 2, n=n, id=f'"t{n}"' if named else "null") for n in numbers]
    path.write_text("".join(lines))
    return path


def test_files_of_the_original_server_go_in_as_few_blocks_and_once(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf = file_shelf
    original(tmp_path / "a", range(300), named=False)
    assert replay(spark, shelf, [tmp_path / "a"]).written == {"q": 300}
    blocks = shelf(shelf.log.read(shelf.queue("q"), messages=100_000))
    assert len(blocks) == 2, "one for each partition"
    shelf(shelf.log.commit(records=_forgotten(shelf)))  # by its blocks alone
    assert replay(spark, shelf, [tmp_path / "a"]).known == 300
    # What plain replay began on goes on as it began.
    path = original(tmp_path / "b", range(300, 310), named=False)
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    assert main(["spool", "replay", str(tmp_path / "b"), "--store", shelf.url, "--keep"]) == 0
    path.write_bytes(whole)
    assert replay(spark, shelf, [tmp_path / "b"]).messages == 6
    found = payloads(shelf)
    assert [[n for n in found if n % 2 == part] for part in (0, 1)] == [
        list(range(0, 310, 2)),
        list(range(1, 310, 2)),
    ]


def test_files_of_the_original_server_go_where_queen_s_clients_look_for_them(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf = file_shelf
    (tmp_path / "failover_019a0c11-8021.buf").write_text(LINES)
    assert replay(spark, shelf, [tmp_path]).written == {"orders": 2, "events": 1}
    orders, events = (shelf(shelf.log.queue(name)) for name in ("orders", "events"))
    assert orders.settings.ordered
    assert events.settings.ordered
    facts = facts_of(orders)
    assert (facts.namespace, facts.task) == ("sales", "process")
    blocks = shelf(shelf.log.read(orders)) + shelf(shelf.log.read(events))
    messages = [message for block in blocks for message in block.decode()]
    found = [(m.partition, m.transaction_id, (m.headers or {}).get("queen-trace-id")) for m in messages]
    assert found == [
        ("customer-123", "tx-1", "trace-1"),
        ("customer-456", "tx-2", "trace-2"),
        ("", "tx-3", "trace-3"),
    ]


def test_transaction_ids_are_compared_by_when_they_were_accepted(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf, hour = file_shelf, 3_600_000_000
    queue, now = shelf.queue("q", dedupe_seconds=3600), SystemClock().now()

    def named(payload: int, hours_ago: float) -> Block:
        created_at = now - int(hours_ago * hour)
        return Block.of([Message(b"%d" % payload, "", "t")], created_at=created_at)

    blocks = [named(1, 5), named(2, 4.5), named(3, 4), named(4, 3.5), named(5, 2)]
    shelf(shelf.log.commit([Append.of(queue, blocks[0], replayed=True)]))
    write(tmp_path / "a", *(("q", each) for each in blocks[1:3]))
    write(tmp_path / "a", *(("q", each) for each in blocks[3:]))
    done = replay(spark, shelf, [tmp_path / "a"])
    assert (done.messages, payloads(shelf)) == (2, [1, 3, 5])
    rows = spark.read.format("forebay").options(url=shelf.url, queue="q").load().orderBy("seq").collect()
    shown = [from_datetime(row.created_at.astimezone(UTC)) for row in rows]
    assert shown == [blocks[0].created_at, blocks[2].created_at, blocks[4].created_at]


def _forgotten(shelf: Shelf) -> list[Any]:
    from forebay.log.values import Record  # noqa: PLC0415 - only here
    from forebay.spark.replay.replaying import SPACE  # noqa: PLC0415 - likewise

    return [Record(SPACE, kept.key, None) for kept in shelf(shelf.log.scan(SPACE))]


def test_transaction_ids_are_taken_once_also_where_the_queue_does_not_look(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf = file_shelf
    shelf.queue("q", dedupe_seconds=0)
    write(tmp_path / "a", ("q", block(0, 10)), ("r", block(0, 10)))
    write(tmp_path / "b", ("q", block(5, 10)), ("r", block(5, 10)), ("q", block(8, 2)))
    done = replay(spark, shelf, [tmp_path / "b", tmp_path / "a"])
    assert payloads(shelf) == list(range(15))
    assert payloads(shelf, "r") == list(range(15))
    assert done.repeated == 12


def test_bad_lines_and_refused_messages_are_set_aside_and_the_rest_goes_in(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf, aside = file_shelf, tmp_path / "aside"
    whole = encode_entry(SpooledBlock("q", block(10, 3))).splitlines(keepends=True)
    whole[1] = whole[1].replace(b'"11"', b'"19"').replace(b":11,", b":19,")
    path = write(tmp_path / "a", ("q", block(0, 10)), bad=b"nonsense\n" + b"".join(whole))
    too_large = Block.of([Message(b"20"), Message(b"1" * (2 << 20)), Message(b"21")])
    other = write(tmp_path / "a", ("q", too_large))
    done = replay(spark, shelf, [tmp_path / "a"], aside=str(aside))
    assert (done.damaged, done.refused, done.messages) == (2, 1, 14)
    assert payloads(shelf) == [*range(10), 10, 12, 20, 21]
    lines = [json.loads(line) for each in sorted(aside.iterdir()) for line in each.read_text().splitlines()]
    assert [(line["file"], line["line"], line["kind"]) for line in lines] == [
        (str(path), 11, "damaged"),
        (str(path), 13, "damaged"),
        (str(other), 1, "refused"),
    ]
    assert lines[0]["text"] == "nonsense"
    assert path.exists()


def test_files_are_removed_only_when_that_was_asked_for_and_all_of_them_is_safe(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    path = write(tmp_path / "a", ("q", block(0, 10)), bad=b"nonsense\n")
    outcomes = tmp_path / "a" / f"settle_{format_id(mint())}.buf"
    outcomes.write_bytes(b"")
    done = replay(spark, file_shelf, [tmp_path / "a"], remove=True)
    assert (done.removed, path.exists()) == (0, True)
    done = replay(spark, file_shelf, [tmp_path / "a"], remove=True, aside=str(tmp_path / "aside"))
    assert (done.removed, path.exists(), outcomes.exists()) == (1, False, True)
    (aside,) = (tmp_path / "aside").iterdir()
    assert "nonsense" in aside.read_text()


def test_a_queue_that_must_be_there_and_is_not_is_refused(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    write(tmp_path / "a", ("q", block(0, 10)))
    done = replay(spark, file_shelf, [tmp_path / "a"], create_queues=False)
    assert (done.refused, done.messages) == (10, 0)
    assert replay(spark, file_shelf, [tmp_path / "a"]).messages == 10


def test_an_ordered_queue_gets_a_block_for_each_partition(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf, queue = file_shelf, file_shelf.queue("q", ordered=True)
    mixed = Block.of([Message(b"%d" % n, f"p{n % 2}") for n in range(10)])
    write(tmp_path / "a", ("q", mixed))
    assert replay(spark, shelf, [tmp_path / "a"]).messages == 10
    blocks = shelf(shelf.log.read(queue))
    assert [(b.partition, [int(m.payload) for m in b.decode()]) for b in blocks] == [
        ("p0", [0, 2, 4, 6, 8]),
        ("p1", [1, 3, 5, 7, 9]),
    ]


def test_the_command_says_what_went_in(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    folders = [str(tmp_path / name) for name in "ab"]
    for folder in folders:
        write(Path(folder), ("q", block(0, 10)))
    words = ["spool", "replay", *folders, "--store", file_shelf.url]
    assert main(words) == 3
    assert "add --spark" in capsys.readouterr().err
    assert main([*words, "--spark", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 20
    assert main([*words, "--spark", "--remove"]) == 3
    assert "--aside" in capsys.readouterr().err
    assert main([*words, "--spark", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["written"], said["repeated"]) == ({"q": 10}, 10)


KILLED = """
import sys
from forebay.api.queen.spooled import creation_by
from forebay.app.opening import open_log
from forebay.spark.replay.replaying import BulkReplay, Tools, Wishes
from forebay.spark.session import session
spark = session(master="local[1]", settings={"spark.log.level": "ERROR"})
bulk = BulkReplay(spark, Tools(open_log, sys.argv[1], creation_by), Wishes(group_bytes=1))
bulk.prepare(sys.argv[2:])
bulk.run(lambda _: print("published", flush=True))
"""


@pytest.mark.chaos
def test_a_replay_that_is_killed_is_gone_on_with(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    for number in range(20):
        write(tmp_path / "a", ("q", block(number * 10, 10)))
    command = [sys.executable, "-c", KILLED, file_shelf.url, str(tmp_path / "a")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(3)] == ["published\n"] * 3
        running.send_signal(signal.SIGKILL)
    found = payloads(file_shelf)
    assert len(found) >= 30
    assert found == list(range(len(found)))
    assert replay(spark, file_shelf, [tmp_path / "a"]).is_complete
    assert payloads(file_shelf) == list(range(200))
