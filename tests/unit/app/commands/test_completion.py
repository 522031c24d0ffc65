"""Scripts for shells name what the parser knows."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from forebay.app.cli import COMMANDS, Command, build_parser, main
from forebay.app.commands.completion import SHELLS, levels


def words_of(commands: Sequence[Command], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield before
    for command in commands:
        yield from words_of(command.verbs, (*before, command.name))


def test_every_command_and_verb_is_a_level() -> None:
    found = {level.words: level for level in levels(build_parser())}
    assert set(found) == set(words_of(COMMANDS))
    assert set(found["queues",].verbs) >= {"list", "create", "purge"}
    assert "--dry-run" in found["queues", "purge"].options
    assert set(found["completion",].verbs) == set(SHELLS)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_the_shell_can_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "dry-run" in script
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)


def complete(*words: str) -> set[str]:
    """What bash offers for the last of some words."""
    quoted = " ".join(f"'{word}'" for word in words)
    script = SHELLS["bash"](list(levels(build_parser())))
    probe = (
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _forebay; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    run = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{probe}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return set(run.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_nouns_verbs_and_options() -> None:
    assert {"queues", "push", "top"} <= complete("forebay", "")
    assert complete("forebay", "queues", "p") == {"pause", "purge"}
    assert complete("forebay", "queues", "purge", "orders", "--d") == {"--dry-run"}
    assert complete("forebay", "spool", "re") == {"repair", "replay"}
    assert complete("forebay", "spool", "replay", "DIR", "--no") == {"--no-create"}
    assert complete("forebay", "completion", "z") == {"zsh"}
    assert complete("forebay", "relay", "dead", "re") == {"redrive"}
    assert complete("forebay", "relay", "dead", "redrive", "--dr") == {"--dry-run"}
