"""The command line parses, dispatches and reports a status."""

import argparse

import pytest

from forebay import __version__
from forebay.app.cli import Command, build_parser, main


def test_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"forebay {__version__}\n"


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: forebay" in capsys.readouterr().out


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["no-such-command"])
    assert exit_info.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


def test_a_command_gets_its_arguments_and_gives_the_status() -> None:
    def declare(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--status", type=int, default=0)

    def run(arguments: argparse.Namespace) -> int:
        status: int = arguments.status
        return status

    command = Command(name="probe", summary="give a status", run=run, declare=declare)
    assert main(["probe", "--status", "7"], known=[command]) == 7


def test_a_noun_runs_its_verbs_and_without_one_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = (Command("one", "give one", lambda _: 1), Command("two", "give two", lambda _: 2))
    noun = Command("number", "give numbers", verbs=verbs)
    assert main(["number", "two"], known=[noun]) == 2
    assert main(["number"], known=[noun]) == 0
    shown = capsys.readouterr().out
    assert "usage: forebay number" in shown
    assert "give two" in shown


def test_an_interrupt_ends_with_status_130() -> None:
    def run(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command = Command(name="probe", summary="be interrupted", run=run)
    assert main(["probe"], known=[command]) == 130


@pytest.mark.parametrize(
    "words",
    ["orders file --raw", "orders --raw file", "--raw orders file", "orders --partition p --raw file"],
)
def test_options_may_stand_anywhere(words: str) -> None:
    arguments = build_parser().parse_args(["push", *words.split()])
    assert (arguments.queue, arguments.file, arguments.raw) == ("orders", "file", True)


def test_an_unknown_option_of_a_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["queues", "list", "--no-such-option"])
    assert exit_info.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "relay --to http://a --queue-full-behaviour block",
            "no option --queue-full-behaviour; did you mean",
        ),
        (
            "relay --queue-full-behaviour=block",
            "did you mean --queue-full-behavior?; see `forebay relay --help`",
        ),
        ("relay stauts", "there is no 'stauts' here; did you mean status?"),
        ("quues list --json", "there is no 'quues' here; did you mean queues?"),
        ("relay plan --raet 5", "no option --raet; did you mean --rate?; see `forebay relay plan --help`"),
        ("relay plan --rate x", "'x' is not a number of entries a second"),
        ("fastqueue inspect", "required: DIR"),
        ("version extra", "unrecognized arguments: extra"),
    ],
)
def test_a_misspelt_word_is_said_with_the_nearest_and_without_all_the_others(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in error
    assert len(error.splitlines()) == 1
