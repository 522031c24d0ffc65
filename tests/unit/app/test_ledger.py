"""The ledger: places that are rarely used show when they are."""

import msgspec

from forebay.app.ledger import ledger_rows, ledger_table
from forebay.failover.books import with_spooled
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats

WORKERS = GroupStats(
    group=Group(1, 1, "workers", 1),
    accepted=9, ready=0, held=0, deferred=0, done=5, dead=4, purged=0, expired=0, corrupt=0, handed=0, due=0,
)  # fmt: skip


def stats_of(group: GroupStats) -> Stats:
    """Stats of one queue with one group."""
    queue = Queue(1, "orders", QueueSettings(), 0)
    return Stats(0, [QueueStats(queue=queue, next=10, floor=1, groups=[group])])


def columns(group: GroupStats) -> list[str]:
    """The heads of the table."""
    return [str(column.header).strip() for column in ledger_table(stats_of(group)).columns]


def test_what_was_purged_is_a_place_of_its_own() -> None:
    assert "purged" not in columns(WORKERS)
    purged = msgspec.structs.replace(WORKERS, dead=1, purged=3)
    assert columns(purged)[7:] == ["dead", "purged", "difference"]
    (row,) = ledger_rows(stats_of(purged))
    assert (row["dead"], row["purged"], row["difference"]) == (1, 3, 0)


def test_what_is_spooled_is_a_place_of_its_own() -> None:
    assert "spooled" not in columns(WORKERS)
    (row,) = ledger_rows(stats_of(WORKERS))
    assert (row["accepted"], row["spooled"]) == (9, 0)
    outage = with_spooled(stats_of(WORKERS), {"orders": 4})
    assert columns(outage.queues[0].groups[0])[2:4] == ["accepted", "spooled"]
    (row,) = ledger_rows(outage)
    assert (row["accepted"], row["spooled"], row["difference"]) == (13, 4, 0)
