"""`forebay spool status`: what it says of a spool."""

from __future__ import annotations

import msgspec

from forebay.app.commands.spool_status import lines_of
from forebay.failover.status import SpoolStatus

WELL = SpoolStatus(
    healthy=True, reason=None, since=1_800_000_000_000_000, pending=0, flushed=7, failed=0, settlements=0,
    files=0, bytes=0, queues={}, outages=1,
)  # fmt: skip


def test_a_spool_that_is_empty() -> None:
    assert list(lines_of(WELL)) == [
        "pushes go to the log, since 2027-01-15T08:00:00.000Z",
        "0 messages and 0 outcomes wait for the log, in 0 files of 0 bytes",
        "7 messages came from the spool to the log since the start",
    ]


def test_a_replay_says_how_far_it_is() -> None:
    busy = msgspec.structs.replace(
        WELL, pending=5_000, queues={"a": 1, "b": 4_999}, rate=2_500.0, seconds_left=2.0, files=2, bytes=9_999
    )
    assert list(lines_of(busy))[1:5] == [
        "5,000 messages and 0 outcomes wait for the log, in 2 files of 9,999 bytes",
        "  b: 4,999",
        "  a: 1",
        "2,500 messages/s are replayed: about 2 seconds are left",
    ]


def test_an_outage_says_why_and_what_is_refused() -> None:
    away = msgspec.structs.replace(
        WELL, healthy=False, reason="no way there", pending=1, settlements=1, seconds_left=None,
        refused="no room", failed=3, late=2,
    )  # fmt: skip
    assert list(lines_of(away)) == [
        "pushes go to the spool, since 2027-01-15T08:00:00.000Z: no way there",
        "pushes are refused: no room",
        "1 message and 1 outcome wait for the log, in 0 files of 0 bytes",
        "nothing is replayed at present",
        "7 messages came from the spool to the log since the start",
        "3 were refused, and are set aside in the folder `failed`, each with its reason",
        "the outcomes of 2 tasks came too late",
    ]
