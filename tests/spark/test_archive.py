"""The archive on real logs: nothing lost, nothing twice, and read together with the log as if it were one."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructType

from forebay.app.cli import main
from forebay.app.opening import open_log
from forebay.log.values import Append, Queue, Room
from forebay.model import Block, Message, SystemClock, UnknownGroup
from forebay.spark.archive.folder import ArchiveFolder
from forebay.spark.archive.job import ArchiveJob, Ran
from forebay.spark.archive.manifest import faults
from forebay.spark.archive.parquet import merge
from forebay.spark.archive.planning import ArchiveSettings
from forebay.spark.archive.reading import spans
from forebay.spark.archive.upkeep import compact, verify
from forebay.spark.arrow import Shape
from forebay.spark.columns import HEADERS, MESSAGE
from forebay.spark.ranges import DataLoss
from forebay.spark.reading import Task, read_pieces
from tests.servers import PostgresServer, environment
from tests.spark.queues import Shelf, shelf_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with shelf_at(f"sqlite:///{tmp_path}/log.db") as opened:
        yield opened


def job(shelf: Shelf, path: Path, **settings: Any) -> ArchiveJob:
    wanted = {"after": 0.0, "wait_max": 0.0, "task_messages_max": 250} | settings
    return ArchiveJob(ArchiveSettings(path=str(path), **wanted), open_log, shelf.url)


def filled(shelf: Shelf, name: str = "orders", count: int = 1000) -> Queue:
    queue = shelf.queue(name)
    shelf.push(queue, [message(i) for i in range(1, count + 1)])
    return queue


def message(i: int) -> Message:
    return Message(b"%d" % i, f"p{i % 3}", f"t{i}", {"h": str(i % 2)} if i % 5 == 0 else None)


def frame(spark: "SparkSession", shelf: Shelf, **options: str) -> "DataFrame":
    asked = {"url": shelf.url, "queue": "orders", "includeHeaders": "true"} | options
    return spark.read.format("forebay").options(**asked).load()


def settled(shelf: Shelf, queue: Queue, claims: int) -> None:
    """Work some blocks as a group."""
    group = shelf(shelf.log.create_group(queue, "workers"))
    for claim in shelf(shelf.log.claim(group, "me", Room(messages=100 * claims))).claims:
        shelf(shelf.log.commit([], [claim.settle_all()]))


def seqs(archive: Path) -> list[int]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    files = ArchiveFolder(archive).newest().of("orders")
    return [seq for file in files for seq in pq.read_table(archive / file.path)["seq"].to_pylist()]


def test_archive_and_log_are_read_as_one(spark: "SparkSession", shelf: Shelf, tmp_path: Path) -> None:
    queue = filled(shelf)
    settled(shelf, queue, 10)
    alone = frame(spark, shelf).collect()
    ran = job(shelf, tmp_path / "a", run_messages_max=620).run_once(spark)
    assert (ran.messages, ran.queues[0].lag, ran.lost) == (620, 380, 0)
    assert verify(ArchiveFolder(tmp_path / "a")) == []
    shelf.push(queue, [message(i) for i in range(1001, 1101)])
    spanning = frame(spark, shelf, archive=str(tmp_path / "a"))
    rows = spanning.collect()
    assert rows[:1000] == alone
    assert [row.seq for row in rows] == list(range(1, 1101))
    # What was archived is read from there, also once the log has dropped it.
    shelf(shelf.log.configure_queue("orders", {"keep_seconds": 0}))
    assert shelf(shelf.log.trim()).blocks
    assert spanning.where("seq <= 620").collect() == alone[:620]


def test_filters_and_partitions_find_the_same_in_the_files(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    filled(shelf)
    job(shelf, tmp_path / "a", run_messages_max=620).run_once(spark)
    rows = frame(spark, shelf, archive=str(tmp_path / "a"))
    alone = frame(spark, shelf)
    for wanted in ("seq between 200 and 700", "partition = 'p1' and seq > 600", "partition like 'p2%'"):
        assert rows.where(wanted).collect() == alone.where(wanted).collect(), wanted
    moment = alone.where("seq = 301").first().created_at  # type: ignore[union-attr]  # it is there
    late = rows.where(rows.created_at >= moment)
    assert [row.seq for row in late.collect()] == list(range(301, 1001))
    for chosen in ({"partition": "p1"}, {"partitionPrefix": "p2"}):
        found = frame(spark, shelf, archive=str(tmp_path / "a"), **chosen).collect()
        assert found == alone.where(F.col("partition") == next(iter(chosen.values()))).collect()
    since = frame(spark, shelf, archive=str(tmp_path / "a"), startingTimestamp=f"{moment.isoformat()}+00:00")
    assert since.count() == 700
    some = frame(spark, shelf, archive=str(tmp_path / "a"), columns="seq,key").where("seq = 5").collect()
    assert [tuple(row) for row in some] == [(5, "t5")]


def test_what_waited_in_a_spool_is_found_by_when_the_log_took_it(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    queue, hour = shelf.queue("orders"), 3_600_000_000
    shelf.push(queue, [message(1)])
    begin = SystemClock().now()
    spooled = Block.of([message(2)], created_at=begin - hour)
    shelf(shelf.log.commit([Append.of(queue, spooled, replayed=True)]))
    shelf.push(queue, [message(3)])
    job(shelf, tmp_path / "a").run_once()
    live = frame(spark, shelf).orderBy("seq").collect()
    archived = frame(spark, shelf, archive=str(tmp_path / "a")).orderBy("seq").collect()
    assert archived == live
    assert live[0].created_at - live[1].created_at > timedelta(minutes=59)
    for options in ({}, {"archive": str(tmp_path / "a")}):
        since = frame(spark, shelf, startingTimestamp=str(begin // 1000), **options)
        assert [row.seq for row in since.orderBy("seq").collect()][-2:] == [2, 3]


def test_files_of_before_there_were_two_times_are_read_and_compacted(shelf: Shelf, tmp_path: Path) -> None:
    filled(shelf, count=400)
    job(shelf, tmp_path / "a", task_messages_max=200).run_once()
    folder = ArchiveFolder(str(tmp_path / "a"))
    for file in folder.require().of("orders"):
        path = tmp_path / "a" / file.path
        rows = pq.read_table(path)
        pq.write_table(rows.drop_columns(["appended_at"]), path)
    span = spans(str(tmp_path / "a"), {"orders": shelf(shelf.log.queue("orders")).number})["orders"]
    assert span.first_since(span.files[0].since + 1) is not None
    merged = merge(tmp_path / "a", span.files)
    rows = pq.read_table(tmp_path / "a" / merged.path)
    assert (rows.num_rows, rows["appended_at"]) == (400, rows["created_at"])


def test_what_is_archived_and_dropped_while_a_query_runs_is_found_in_the_archive(
    shelf: Shelf, tmp_path: Path
) -> None:
    queue = filled(shelf, count=500)
    job(shelf, tmp_path / "a", run_messages_max=100).run_once()
    planned = Task(queue, 101, 451)
    shelf(shelf.log.configure_queue("orders", {"keep_seconds": 0}))
    job(shelf, tmp_path / "a", run_messages_max=200).run_once()
    shelf(shelf.log.trim())
    pieces = list(read_pieces(shelf.face, planned, loud=True, archive=str(tmp_path / "a")))
    assert [piece.first + i for piece in pieces for i in range(len(piece.block))] == list(range(101, 451))
    rows = Shape(StructType([*MESSAGE.fields, HEADERS])).batch(pieces).to_pylist()
    found = [Message(r["value"], r["partition"], r["key"], dict(r["headers"] or ()) or None) for r in rows]
    assert found == [message(i) for i in range(101, 451)]
    with pytest.raises(DataLoss, match="messages 101 to 300"):
        list(read_pieces(shelf.face, planned, loud=True))


def test_outcomes_span_too(spark: "SparkSession", shelf: Shelf, tmp_path: Path) -> None:
    queue = filled(shelf, count=300)
    settled(shelf, queue, 2)
    asked = {"url": shelf.url, "queue": "orders", "table": "outcomes"}
    alone = {tuple(row) for row in spark.read.format("forebay").options(**asked).load().collect()}
    ran = job(shelf, tmp_path / "a", wait_max=3600.0).run_once(spark)
    assert (ran.messages, ran.queues[0].outcomes) == (200, 200)
    settled(shelf, queue, 1)
    rows = spark.read.format("forebay").options(**asked, archive=str(tmp_path / "a")).load().collect()
    assert len(rows) == 300
    assert alone < {tuple(row) for row in rows}


def test_what_a_group_has_not_finished_waits_until_it_is_late(shelf: Shelf, tmp_path: Path) -> None:
    queue = filled(shelf, count=500)
    settled(shelf, queue, 2)
    patient = job(shelf, tmp_path / "a", wait_max=3600.0)
    assert patient.run_once().messages == 200
    assert patient.run_once().messages == 0
    ran = job(shelf, tmp_path / "a").run_once()
    assert (ran.messages, ran.queues[0].early) == (300, 300)
    assert seqs(tmp_path / "a") == list(range(1, 501))


def test_retention_waits_for_the_archive_and_no_longer(shelf: Shelf, tmp_path: Path) -> None:
    queue = filled(shelf, count=400)
    shelf(shelf.log.configure_queue("orders", {"keep_seconds": 0}))
    job(shelf, tmp_path / "a", run_messages_max=200).run_once()
    shelf(shelf.log.trim())
    assert shelf(shelf.log.read(queue))[0].first & ((1 << 40) - 1) == 201
    job(shelf, tmp_path / "a").run_once()
    shelf(shelf.log.trim())
    assert shelf(shelf.log.read(queue)) == []
    assert shelf.group("orders", "forebay.archive").difference == 0


def test_what_expired_before_it_was_archived_is_a_gap_that_is_told(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    queue = filled(shelf, count=300)
    job(shelf, tmp_path / "a", run_messages_max=100).run_once()
    shelf(shelf.log.configure_queue("orders", {"expire_seconds": 0.0001, "keep_seconds": 0}))
    shelf(shelf.log.trim())
    shelf(shelf.log.configure_queue("orders", {"expire_seconds": 3600}))
    shelf.push(queue, [message(i) for i in range(301, 401)])
    ran = job(shelf, tmp_path / "a").run_once()
    assert (ran.lost, ran.messages, ran.is_clean) == (200, 100, False)
    manifest = ArchiveFolder(tmp_path / "a").newest()
    assert [(gap.first, gap.last) for gap in manifest.gaps] == [(101, 300)]
    assert faults(manifest) == []
    with pytest.raises(Exception, match="messages 101 to 300 of queue 'orders' are gone"):
        frame(spark, shelf, archive=str(tmp_path / "a")).collect()
    some = frame(spark, shelf, archive=str(tmp_path / "a"), failOnDataLoss="false")
    assert [row.seq for row in some.collect()] == [*range(1, 101), *range(301, 401)]


def test_a_run_that_ends_after_its_manifest_is_gone_on_with(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shelf, count=400)
    cut = job(shelf, tmp_path / "a", run_messages_max=200)
    monkeypatch.setattr(cut, "_advance", _gone)
    with pytest.raises(UnknownGroup):
        cut.run_once()
    assert shelf.group("orders", "forebay.archive").ready == 400
    job(shelf, tmp_path / "a").run_once()
    assert seqs(tmp_path / "a") == list(range(1, 401))
    assert shelf.group("orders", "forebay.archive").ready == 0


def _gone(stats: Any, _group: Any, manifest: Any) -> None:
    if stats.queue.name in manifest.queues:
        raise UnknownGroup("the power went")


def test_files_of_an_attempt_that_no_manifest_names_are_removed(shelf: Shelf, tmp_path: Path) -> None:
    filled(shelf, count=200)
    job(shelf, tmp_path / "a").run_once()
    (named,) = (tmp_path / "a" / "messages").rglob("*.parquet")
    named.with_name("0000000000000000201-0000000000000000300-x.parquet").write_bytes(b"half")
    assert job(shelf, tmp_path / "a").run_once().swept == 1
    assert list((tmp_path / "a" / "messages").rglob("*.parquet")) == [named]


def test_compacting_changes_files_and_nothing_else(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    queue = filled(shelf, count=300)
    job(shelf, tmp_path / "a", task_messages_max=100).run_once(spark)
    before = frame(spark, shelf, archive=str(tmp_path / "a"))
    expected = frame(spark, shelf).collect()
    folder = ArchiveFolder(tmp_path / "a")
    assert compact(folder, spark, fewer_min=3).after == 3
    done = compact(folder, spark)
    assert (done.before, done.after) == (3, 1)
    assert verify(folder) == []
    assert before.collect() == expected
    shelf.push(queue, [message(301)])
    job(shelf, tmp_path / "a", retire_after=0.0).run_once()
    assert len(list((tmp_path / "a" / "messages").rglob("*.parquet"))) == 2
    assert frame(spark, shelf, archive=str(tmp_path / "a")).count() == 301


def test_verify_names_what_is_damaged_or_missing(shelf: Shelf, tmp_path: Path) -> None:
    filled(shelf, count=200)
    job(shelf, tmp_path / "a", task_messages_max=100).run_once()
    one, other = sorted((tmp_path / "a" / "messages").rglob("*.parquet"))
    data = bytearray(one.read_bytes())
    data[50] ^= 1
    one.write_bytes(data)
    other.unlink()
    found = verify(ArchiveFolder(tmp_path / "a"))
    assert any("checksum" in text for text in found)
    assert any("is missing" in text for text in found)
    assert main(["archive", "verify", str(tmp_path / "a"), "--json"]) == 1


def test_a_queue_that_was_made_anew_goes_on_where_it_was(shelf: Shelf, tmp_path: Path) -> None:
    filled(shelf, count=200)
    job(shelf, tmp_path / "a").run_once()
    shelf(shelf.log.delete_queue("orders"))
    filled(shelf, count=300)
    assert job(shelf, tmp_path / "a").run_once().messages == 300
    assert seqs(tmp_path / "a") == list(range(1, 501))
    assert verify(ArchiveFolder(tmp_path / "a")) == []


def test_the_archive_of_another_log_is_left_alone(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    filled(shelf, count=200)
    job(shelf, tmp_path / "a").run_once()
    with shelf_at(f"sqlite:///{tmp_path}/other.db") as other:
        filled(other, "first", count=100)
        filled(other, count=300)
        ran = job(other, tmp_path / "a").run_once()
        assert {each.queue: each.messages for each in ran.queues} == {"first": 100, "orders": 0}
        assert "of another log" in str(ran.queues[1].error)
        with pytest.raises(Exception, match="of another log"):
            frame(spark, other, archive=str(tmp_path / "a")).collect()


def test_a_range_goes_back_into_a_queue_once(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    filled(shelf)
    shelf.queue("again")
    job(shelf, tmp_path / "a", run_messages_max=620).run_once(spark)
    words = ["archive", "replay", str(tmp_path / "a"), "--store", shelf.url, "--queue", "orders", "--into"]
    words += ["again", "--from", "#500", "--to", "#701"]
    missing = ["nowhere" if word == "again" else word for word in words]
    for dry in (["--dry-run"], []):
        assert main([*missing, *dry]) == 3
        said = capsys.readouterr().err
        assert "no queue 'nowhere' to replay into; make it first: forebay queues create nowhere" in said
    assert main([*words, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["messages"], planned["plan"]["archived"]) == (201, 121)
    assert main(words) == 0
    assert main(words) == 0
    assert "before" in capsys.readouterr().err
    blocks = shelf(shelf.log.read(shelf.queue("again")))
    assert [m for block in blocks for m in block.decode()] == [message(i) for i in range(500, 701)]


def test_commands_say_what_an_archive_holds(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(shelf, count=200)
    words = ["--store", shelf.url, "--after", "0", "--wait-max", "0"]
    assert main(["archive", "run", str(tmp_path / "a"), *words]) == 0
    assert "200 messages were archived" in capsys.readouterr().err
    assert main(["archive", "list", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"]["orders"]["next"] == 201
    capsys.readouterr()
    assert main(["archive", "run", str(tmp_path / "a"), *words, "--queue", "order", "--queue", "orders"]) == 1
    said = capsys.readouterr().err
    assert "order: there is no queue 'order' (did you mean 'orders'?)" in said
    assert "0 messages were archived" in said
    assert main(["archive", "run", str(tmp_path / "a"), *words, "--queue", "bills-*"]) == 0
    assert main(["archive", "list", str(tmp_path / "nowhere")]) == 3
    assert "there is no archive" in capsys.readouterr().err


def test_postgres_is_archived_too(
    spark: "SparkSession", postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with shelf_at(postgres_server.create_database()) as shelf:
        queue = filled(shelf)
        settled(shelf, queue, 3)
        alone = frame(spark, shelf).collect()
        ran = job(shelf, tmp_path / "a", run_messages_max=500).run_once(spark)
        assert (ran.messages, ran.queues[0].outcomes) == (500, 300)
        assert frame(spark, shelf, archive=str(tmp_path / "a")).collect() == alone


KILLED = """
import sys
from forebay.app.opening import open_log
from forebay.spark.archive.job import ArchiveJob
from forebay.spark.archive.planning import ArchiveSettings
settings = ArchiveSettings(path=sys.argv[2], after=0, wait_max=0, run_messages_max=40, task_messages_max=20)
job = ArchiveJob(settings, open_log, sys.argv[1])
while job.run_once().messages:
    print("ran", flush=True)
"""


@pytest.mark.chaos
def test_a_run_that_is_killed_loses_nothing_and_repeats_nothing(shelf: Shelf, tmp_path: Path) -> None:
    filled(shelf, count=1200)
    for rounds in range(1, 4):
        command = [sys.executable, "-c", KILLED, shelf.url, str(tmp_path / "a")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as running:
            assert running.stdout is not None
            for _ in range(rounds):
                running.stdout.readline()
            running.send_signal(signal.SIGKILL)
        assert faults(ArchiveFolder(tmp_path / "a").newest()) == []
    ran: Ran = job(shelf, tmp_path / "a").run_once()
    assert ran.lost == 0
    assert seqs(tmp_path / "a") == list(range(1, 1201))
    assert verify(ArchiveFolder(tmp_path / "a")) == []
    assert shelf.group("orders", "forebay.archive").ready == 0
