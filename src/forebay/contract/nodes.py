"""A YAML document with the place of everything in it, and the faults that are found on the way.

The file is composed, not loaded: YAML's own ideas of numbers, dates and switches stay out, and a key that is
there twice is seen. Invariants: nothing is entered deeper than the caller goes, so a document that contains
itself does no harm; faults are bounded.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Final

import yaml
from yaml.reader import ReaderError

from forebay.contract.errors import FAULTS_MAX, Fault

__all__ = ["Document", "excerpt", "is_null", "keys_of", "line_of", "nearest"]

_CORE: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "timestamp", "null"))
_EXCERPT: Final = 64
_BRACKETS: Final = re.compile(
    r"(?<=[\s{,])(type[ \t]*:[ \t]*)\[\](\w+)(?=[ \t]*(?:[,}#\r]|$))", re.MULTILINE | re.ASCII
)
_STAND_IN: Final = "\u2039\u203a"
"""For the brackets of a type without quotes, where YAML would end: as long as they are."""


class Document:
    """One file on its way to a contract."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.faults: list[Fault] = []

    def compose(self, text: str) -> yaml.Node | None:
        """The root of the document; None when there is none, or it is no YAML."""
        try:
            return self._composed(text)
        except yaml.YAMLError as error:
            unquoted = _BRACKETS.sub(rf"\g<1>{_STAND_IN}\g<2>", text)
            if unquoted != text:
                return self._unquoted(text, unquoted)
            self._not_yaml(text, error)
        except RecursionError:
            self._note(1, 1, "it is nested too deeply", "is it the right file?")
        return None

    def _composed(self, text: str) -> yaml.Node | None:
        root: yaml.Node | None = yaml.compose(text, yaml.SafeLoader)
        return root

    def _unquoted(self, text: str, unquoted: str) -> yaml.Node | None:
        """Say where quotes are missing, and go on as if they were there, to find what else is wrong."""
        for found in _BRACKETS.finditer(text):
            type_name = f"[]{found[2]}"
            message = f"type {type_name} has no quotes"
            self._note(*_place(text, found.end(1)), message, f'write it as "{type_name}"')
        try:
            return self._composed(unquoted)
        except yaml.YAMLError as error:
            self._not_yaml(unquoted, error)
        except RecursionError:
            self._note(1, 1, "it is nested too deeply", "is it the right file?")
        return None

    def _not_yaml(self, text: str, error: yaml.YAMLError) -> None:
        if isinstance(error, ReaderError):
            place, problem = _place(text, error.position), "it holds a character that YAML can't have"
        else:
            mark = getattr(error, "problem_mark", None)
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            problem = getattr(error, "problem", None) or str(error)
        self._note(*place, f"it is not YAML: {problem}", "correct the line, or the one before it")

    def fault(self, node: yaml.Node | None, message: str, hint: str | None = None) -> None:
        """Note what is wrong at a node, or with the whole document."""
        place = (1, 1) if node is None else (node.start_mark.line + 1, node.start_mark.column + 1)
        self._note(*place, message, hint)

    def _note(self, line: int, column: int, message: str, hint: str | None) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Fault(file=self._name, line=line, column=column, message=message, hint=hint))

    def entries(self, node: yaml.Node, what: str, known: Iterable[str]) -> dict[str, yaml.Node]:
        """The values of a mapping by key; what isn't known, or is there twice, is noted and left out."""
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"{what} is {_kind(node)}, not a mapping", f"write {', '.join(known)} below it")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, name, value, first in keys_of(node):
            if name is None:
                self.fault(key, f"{what}: a key is {_kind(key)}, not a word", f"known are {', '.join(known)}")
            elif first is not None:
                self.fault(key, f"{what}: key {excerpt(name)} is here twice", f"it is in line {first}, too")
            elif name in known:
                found[name] = value
            else:
                self.fault(key, f"{what}: unknown key {excerpt(name)}", _meant(name, known))
        return found

    def items(self, node: yaml.Node | None, what: str, most: int) -> Iterator[yaml.Node]:
        """What is in a list; of null, nothing."""
        if node is None or is_null(node):
            return
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, f"{what} is {_kind(node)}, not a list", "begin each entry with a dash")
            return
        if len(node.value) > most:
            self.fault(node, f"{what} has {len(node.value)} entries", f"there can be {most}")
        yield from node.value[:most]

    def text(self, node: yaml.Node | None, what: str) -> str | None:
        """A plain value as it is written; empty when there is none, None when it is something else."""
        if node is None or is_null(node):
            return ""
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
            self.fault(node, f"{what} is {_kind(node)}, not a plain value", "give one value")
            return None
        text: str = node.value
        return text.replace(_STAND_IN, "[]")


def keys_of(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, str | None, yaml.Node, int | None]]:
    """Each key of a mapping: its node, its text (none if it is no word), its value.

    And, if it was there before, the line of the first: loaded, the last would win, and nobody would know.
    """
    lines: dict[str, int] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        yield key, name, value, None if name is None else lines.get(name)
        if name is not None:
            lines.setdefault(name, line_of(key))


def line_of(node: yaml.Node) -> int:
    """Where a node begins, counted from 1."""
    return int(node.start_mark.line) + 1


def _place(text: str, position: int) -> tuple[int, int]:
    """The line and the column of a character."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def is_null(node: yaml.Node) -> bool:
    """Whether there is nothing."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _CORE + "null"


def excerpt(text: str) -> str:
    """Quote the start of a text that may be long or unprintable."""
    return ascii(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "...")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant."""
    found = difflib.get_close_matches(word[:_EXCERPT], list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _meant(word: str, known: Iterable[str]) -> str:
    near = nearest(word, known)
    return f"did you mean {near}?" if near else f"known are {', '.join(known)}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if is_null(node):
        return "empty"
    return "a plain value" if node.tag in _SCALARS else "a value with a tag"
