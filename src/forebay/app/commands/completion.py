"""`forebay completion`: scripts for shells, made from the parser.

Invariants: a script names what the parser knows, no more and no less; nothing runs when a word is completed.
"""

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay.app.commands.output import print_line

__all__ = [
    "SHELLS",
    "Level",
    "bash_script",
    "declare_completion",
    "fish_script",
    "levels",
    "print_script",
    "zsh_script",
]


class Level(NamedTuple):
    """What can follow some words: verbs and options, each with its help."""

    words: tuple[str, ...]
    verbs: dict[str, str]
    options: dict[str, str]


def declare_completion(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=list(SHELLS), help="bash, zsh or fish")


def print_script(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the script for a shell."""
    print_line(SHELLS[arguments.shell](list(levels(parser))).rstrip("\n"))
    return 0


def levels(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Level]:
    """What the parser knows, from the top down."""
    verbs: dict[str, str] = {}
    options: dict[str, str] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            verbs |= {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - likewise
            below |= action.choices
        for option in action.option_strings:
            options[option] = _help(action)
        if not action.option_strings and action.choices and not below:
            verbs |= {str(choice): "" for choice in action.choices}
    yield Level(words, verbs, options)
    for name, subparser in below.items():
        yield from levels(subparser, (*words, name))


def _help(action: argparse.Action) -> str:
    values: dict[str, Any] = vars(action)
    return (action.help or "") % values if action.help != argparse.SUPPRESS else ""


def bash_script(known: list[Level]) -> str:
    """For bash: `source <(forebay completion bash)`."""
    cases = "\n".join(
        f"        {_quoted(' '.join(words))}) words={_quoted(' '.join([*verbs, *options]))} ;;"
        for words, verbs, options in known
    )
    return f"""_forebay() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path="" words="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{path:+$path }}$word" in
            {_alternatives(known)}) path="${{path:+$path }}$word" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ $current != -* && ${{#COMPREPLY[@]}} -eq 0 ]]; then
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _forebay forebay
"""


def zsh_script(known: list[Level]) -> str:
    """For zsh: `forebay completion zsh > "${fpath[1]}/_forebay"`."""
    cases = "\n".join(
        f"        {_quoted(' '.join(level.words))})\n            candidates=({_described(level)}) ;;"
        for level in known
    )
    return f"""#compdef forebay
_forebay() {{
    local current_path="" word
    local -a candidates
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "${{current_path:+$current_path }}$word" in
            {_alternatives(known)}) current_path="${{current_path:+$current_path }}$word" ;;
        esac
    done
    case "$current_path" in
{cases}
    esac
    _describe forebay candidates || _files
}}
if [ "$funcstack[1]" = "_forebay" ]; then
    _forebay "$@"
else
    compdef _forebay forebay
fi
"""


def fish_script(known: list[Level]) -> str:
    """For fish: `forebay completion fish | source`."""
    lines = []
    for level in known:
        condition = _fish_condition(level, known)
        if level.verbs:
            lines.append(f"complete -c forebay {condition} -f")
        for verb, text in level.verbs.items():
            lines.append(f"complete -c forebay {condition} -a {_quoted(verb)} -d {_quoted(text)}")
        for option, text in level.options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c forebay {condition} {flag} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _fish_condition(level: Level, known: list[Level]) -> str:
    """When a level is the one that is written on: its words were seen, and none that go on from it."""
    below = [other.words[-1] for other in known if other.words[:-1] == level.words and other.words]
    seen = [f"__fish_seen_subcommand_from {word}" for word in level.words]
    unseen = [f"not __fish_seen_subcommand_from {' '.join(below)}"] if below else []
    return f"-n {_quoted('; and '.join([*seen, *unseen]) or 'true')}"


def _alternatives(known: list[Level]) -> str:
    return "|".join(_quoted(" ".join(level.words)) for level in known if level.words)


def _described(level: Level) -> str:
    items = [*level.verbs.items(), *level.options.items()]
    return " ".join(_quoted(f"{name}:{text.replace(':', ' ')}") for name, text in items)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
"""The script of each shell."""
