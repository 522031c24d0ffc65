"""Messages are printed so that people can read them and programs can read them back."""

import pytest
from msgspec import json

from forebay.app.commands.lines import parse_object
from forebay.app.commands.output import age_text, message_fields, message_line, print_table, time_text
from forebay.model import Message


@pytest.mark.parametrize(
    "message",
    [
        Message(b"text"),
        Message("größe".encode(), "p", "t1", {"flow": "a"}),
        Message(b"\xff\x00", "p"),
        Message(b'{"a": 1}'),
        Message(b""),
    ],
)
def test_what_is_printed_for_programs_can_be_pushed_again(message: Message) -> None:
    line = json.encode(message_fields(message))
    assert parse_object(1, line, Message(b"")) == message


def test_a_payload_that_is_no_text_is_marked() -> None:
    assert message_fields(Message(b"\xff")) == {"payload": "/w==", "encoding": "base64"}
    assert message_line(7, 0, Message(b"\xff")) == "1970-01-01T00:00:00.000Z 7 base64:/w=="


def test_a_payload_cannot_drive_the_terminal() -> None:
    line = message_line(7, 0, Message(b"\x1b[2Jgone\nnext", "p\x07"))
    assert line == "1970-01-01T00:00:00.000Z 7 [p\ufffd] \\x1b[2Jgone\\nnext"


def test_a_table_shows_markup_and_control_characters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count", "flag"], [("[red]x[/red]\x1b", 1234, True)])
    shown = capsys.readouterr().out
    assert "[red]x[/red]\ufffd" in shown
    assert "1,234" in shown
    assert "yes" in shown
    assert "\x1b" not in shown


def test_times_and_ages_are_as_exact_as_they_need_to_be() -> None:
    assert time_text(None) == ""
    assert time_text(1_000) == "1970-01-01T00:00:00.001Z"
    assert [age_text(seconds) for seconds in (None, 0.04, 0.26, 59.6, 125.2, 7384.9)] == [
        "", "0s", "300ms", "1m", "2m5s", "2h3m",
    ]  # fmt: skip
