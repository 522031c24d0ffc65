"""The command line parses, dispatches and reports a status."""

import argparse

import pytest

from forebay import __version__
from forebay.app.cli import Command, main


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


def test_an_interrupt_ends_with_status_130() -> None:
    def run(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command = Command(name="probe", summary="be interrupted", run=run)
    assert main(["probe"], known=[command]) == 130


def test_a_verb_of_a_noun_runs_and_a_noun_alone_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = (Command("one", "give 1", lambda _: 1), Command("two", "give 2", lambda _: 2))
    noun = Command("noun", "give numbers", verbs=verbs)
    assert main(["noun", "two"], known=[noun]) == 2
    assert main(["noun", "one"], known=[noun]) == 1
    with pytest.raises(SystemExit) as exit_info:
        main(["noun"], known=[noun])
    assert exit_info.value.code == 2
    assert "verb" in capsys.readouterr().err
