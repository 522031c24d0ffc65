"""A meter says how far something has come."""

import pytest

from forebay.app.commands.meter import LINE_SECONDS, Meter, shown


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_meter_tells_rate_and_time_left_and_no_time_when_it_is_there() -> None:
    watch = Watch()
    meter = Meter("replay", 10_000, "events", now=watch)
    assert meter.text() == "0 of 10,000 events, 0/s"
    watch.seconds += 2
    meter.add(2_500)
    assert meter.text() == "2,500 of 10,000 events, 1,250/s, 6s left"
    meter.add(7_500)
    assert meter.text() == "10,000 of 10,000 events, 5,000/s"


def test_without_a_terminal_there_is_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    meter = Meter("replay", 1_000, "events", now=watch)
    with shown(meter):
        meter.add(10)
        for _ in range(4):
            watch.seconds += LINE_SECONDS / 2
            meter.add(10)
    assert capsys.readouterr().err.splitlines() == [
        "replay: 30 of 1,000 events, 6/s, 2m42s left",
        "replay: 50 of 1,000 events, 5/s, 3m10s left",
    ]
