"""Checks judge by numbers, and what isn't well comes with what helps."""

from pathlib import Path

import pytest

from forebay.app.checkup.finding import clock_finding
from forebay.app.checkup.machine import check_folder, judge_space, judge_sync
from forebay.app.checkup.services import judge_policy, judge_readiness
from forebay.app.checkup.spool import judge_holder
from forebay.app.checkup.spool import judge_space as judge_spool_space

HERE = Path("data")


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (clock_finding("clock", 0.4), "ok"),
        (clock_finding("clock", -1.5), "warning"),
        (clock_finding("clock", 31), "failure"),
        (judge_space(HERE, 50 << 30, 100 << 30), "ok"),
        (judge_space(HERE, 1 << 30, 100 << 30), "warning"),
        (judge_space(HERE, 10 << 20, 100 << 30), "failure"),
        (judge_sync(HERE, 0.004), "ok"),
        (judge_sync(HERE, 0.2), "warning"),
        (judge_sync(HERE, 2.0), "failure"),
        (judge_spool_space(HERE, 50 << 30, 100 << 30), "ok"),
        (judge_spool_space(HERE, 2 << 30, 100 << 30), "warning"),
        (judge_spool_space(HERE, 1000 << 20, 2 << 30), "warning"),
        (judge_holder(HERE, 7, ["python", "-W", "error", "-m", "forebay.app.cli", "serve"]), "ok"),
        (judge_holder(HERE, 7, ["python", "/usr/bin/forebay", "serve"]), "ok"),
        (judge_holder(HERE, 7, []), "ok"),
        (judge_holder(HERE, None, []), "ok"),
        (judge_holder(HERE, 7, ["tar", "-c", "forebay-data/spool"]), "failure"),
        (judge_policy("noeviction"), "ok"),
        (judge_policy("volatile-lru"), "ok"),
        (judge_readiness(200, b'{"ready": true, "parts": {"store": "ok", "warm": "ok"}}'), "ok"),
        (judge_readiness(200, b'{"ready": true, "parts": {"store": "ok", "warm": "away"}}'), "warning"),
        (judge_readiness(200, b"fine"), "ok"),
        (judge_readiness(503, b'{"ready": false, "parts": {"store": "away"}}'), "failure"),
        (judge_policy("allkeys-lru"), "failure"),
    ],
)
def test_a_number_is_judged(finding: object, level: str) -> None:
    assert getattr(finding, "level", None) == level
    assert (getattr(finding, "help", None) is None) == (level == "ok")


def test_the_folder_is_left_as_it_was(tmp_path: Path) -> None:
    assert [finding.subject for finding in check_folder(tmp_path)] == ["data folder", "disk", "fsync"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_fails_with_the_command_that_makes_it(tmp_path: Path) -> None:
    (finding,) = check_folder(tmp_path / "no")
    assert finding.level == "failure"
    assert finding.help == f"mkdir -p {tmp_path / 'no'}"
