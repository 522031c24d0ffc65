"""Warnings that come often are written now and then, and none goes uncounted."""

import logging

import pytest

from forebay.deliver.sparse_log import SparseLog


def test_the_first_warning_is_written_and_those_after_it_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    log = SparseLog(logging.getLogger("forebay.test"), elapsed=lambda: now)
    for place in range(5):
        log.warning("%d of %s", place, "them")
    now = 110.0
    log.warning("%d of %s", 5, "them")
    now = 120.0
    log.warning("%d of %s", 6, "them")
    assert caplog.messages == ["0 of them", "5 of them (and 4 times more before)", "6 of them"]
