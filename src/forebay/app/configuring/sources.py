"""What was said where: the file, the environment. Each gives texts by path, and the faults of its form.

The file is composed, not loaded: YAML's own ideas of numbers, dates and switches stay out, every value
has its line, and a key that is there twice is seen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from forebay.app.configuring.faults import Fault, Given, excerpt, nearest
from forebay.app.configuring.schema import (
    ORIGINAL_VARIABLES,
    OTHER_VARIABLES,
    RELAY,
    SERVER,
    Schema,
    variable_of,
)
from forebay.contract.nodes import keys_of
from forebay.model import redact

__all__ = [
    "FILE_BYTES_MAX", "entries_of_environment", "entries_of_file", "from_environment", "from_file",
    "from_node", "from_original",
]  # fmt: skip

FILE_BYTES_MAX: Final = 1 << 20
"""The largest file that is read: a hundred times more than all settings take."""

_CORE: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "timestamp", "null"))
_NAME_MAX: Final = 80
_ENTRY: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_QUOTED: Final = re.compile(r"'.{2,}'", re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?", re.ASCII)
_UNITS: Final = {"ms": "milliseconds", "s": "seconds"}
_KNOWN: Final = frozenset(
    setting.variable for program in (SERVER, RELAY) for setting in program.settings.values()
)
"""The variables of all programs: one environment may serve several."""
_OF_ENTRIES: Final = tuple(
    f"{variable_of(section)}_" for program in (SERVER, RELAY) for section in program.entries
)


def from_environment(
    environ: Mapping[str, str], schema: Schema = SERVER
) -> tuple[dict[str, Given], list[Fault]]:
    """The settings among the variables. An empty variable is as good as none.

    FOREBAY_STORE names the log of a server, too, unless it is the address of a server: that is for commands.
    """
    found: dict[str, Given] = {}
    faults = []
    paths = {setting.variable: setting.path for setting in schema.settings.values()}
    store = environ.get("FOREBAY_STORE", "")
    if schema is SERVER and store and not store.startswith(("http://", "https://")):
        found["store.url"] = Given(store, "FOREBAY_STORE")  # FOREBAY_STORE_URL, below, comes before it
    for name, text in sorted(environ.items()):
        if not name.startswith("FOREBAY_") or name in OTHER_VARIABLES:
            continue
        if name in paths:
            if text:
                found[paths[name]] = Given(text, name)
        elif name not in _KNOWN and not name.startswith(_OF_ENTRIES):
            faults.append(_unknown_variable(name, [*_KNOWN, *OTHER_VARIABLES]))
    return found, faults


def _unknown_variable(name: str, known: Iterable[str]) -> Fault:
    near = nearest(name, sorted(known))
    hint = f"did you mean {near}?" if near else "unset it, or see the reference on configuration"
    source = f"environment variable {name[:_NAME_MAX]}"
    return Fault(key="", source=source, message="there is no such setting", hint=hint)


def _of_two(variable: str, one: str, other: str) -> Fault:
    source = f"environment variable {variable[:_NAME_MAX]}"
    return Fault(key="", source=source, message=f"it fits both {one} and {other}", hint="rename one of them")


def entries_of_environment(
    environ: Mapping[str, str], section: str, schema: Schema, names: Iterable[str]
) -> tuple[dict[str, dict[str, Given]], list[Fault]]:
    """The entries of a section whose keys are names, among the variables.

    `FOREBAY_DELIVER_AUDIT_LOG_QUEUE` is the queue of `audit-log` where that is one of the `names` in the
    file; otherwise of a new entry `audit_log`. The longest setting that fits the end of a variable is meant.
    """
    start = f"{variable_of(section)}_"
    known: dict[str, str] = {}
    twins: dict[str, str] = {}
    for name in names:
        if (first := known.setdefault(_as_variable(name), name)) != name:
            twins[first] = name
    ends = {_as_variable(path): path for path in sorted(schema.settings, key=len)}
    found: dict[str, dict[str, Given]] = {}
    faults = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(start):
            continue
        said = variable.removeprefix(start)
        split = _split(said, known, ends)
        if split is None:
            faults.append(_unknown_variable(variable, _variables_like(start, said, known, ends)))
        elif text:
            name, path = split
            if name in twins:
                faults.append(_of_two(variable, f"{section}.{name}", f"{section}.{twins[name]}"))
            found.setdefault(name, {})[path] = Given(text, variable)
    return found, faults


def _as_variable(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").upper()


def _split(said: str, known: Mapping[str, str], ends: Mapping[str, str]) -> tuple[str, str] | None:
    """The name and the setting that the rest of a variable is made of."""
    for shape in sorted(known, key=len, reverse=True):
        if said.startswith(f"{shape}_") and said.removeprefix(f"{shape}_") in ends:
            return known[shape], ends[said.removeprefix(f"{shape}_")]
    for end in sorted(ends, key=len, reverse=True):
        name = said.removesuffix(f"_{end}")
        if name not in ("", said) and _ENTRY.fullmatch(name):
            return name.lower(), ends[end]
    return None


def _variables_like(start: str, said: str, known: Iterable[str], ends: Iterable[str]) -> Iterator[str]:
    """Variables that might have been meant: each name that it could begin with, and all settings of it."""
    words = said.split("_")[:_NAME_MAX]
    names = {*known, *("_".join(words[:count]) for count in range(1, len(words)))}
    for name in names:
        for end in ends:
            yield f"{start}{name}_{end}"


def from_original(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[Fault]]:
    """The settings among the variables of the original server, whose numbers have no units."""
    found: dict[str, Given] = {}
    faults = []
    for name, (path, unit) in ORIGINAL_VARIABLES.items():
        text = environ.get(name)
        if not text:
            continue
        if unit and not _NUMBER.fullmatch(text):
            message = f"{excerpt(text)} is not a number of {_UNITS[unit]}"
            faults.append(Fault(key=path, source=name, message=message, hint="write it in digits, like 100"))
        else:
            found[path] = Given(text + unit, name)
    return found, faults


def from_file(path: Path, source: str, schema: Schema = SERVER) -> tuple[dict[str, Given], list[Fault]]:
    """The settings in a file; `source` says who named the file."""
    data, faults = _read(path, source)
    return ({}, faults) if faults else _parse(data, str(path), schema)


def _read(path: Path, source: str) -> tuple[bytes, list[Fault]]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is none that a file can have"
        text = f"{path} can't be read: {why}"
        return b"", [
            Fault(key="", source=source, message=text, hint="name a file that is there and readable")
        ]
    if len(data) > FILE_BYTES_MAX:
        text = f"is over {FILE_BYTES_MAX} bytes long"
        return b"", [Fault(key="", source=str(path), message=text, hint="is it the right file?")]
    return data, []


def entries_of_file(
    path: Path, source: str, section: str, schema: Schema
) -> tuple[dict[str, dict[str, Given]], list[Fault]]:
    """The entries of a section whose keys are names: what each says by path, and the faults of all."""
    data, faults = _read(path, source)
    try:
        root = yaml.compose(data, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeError, RecursionError):
        return {}, []  # `from_file` says so
    if faults or not isinstance(root, yaml.MappingNode):
        return {}, []
    node: yaml.Node | None = root
    for part in section.split("."):
        node = _below(node, part)
    return _entries(node, section, schema, str(path)) if node is not None else ({}, [])


def _below(node: yaml.Node | None, wanted: str) -> yaml.Node | None:
    """What a mapping has under a key; None where that is nothing."""
    if not isinstance(node, yaml.MappingNode):
        return None
    found = [value for _, name, value, _ in keys_of(node) if name == wanted and not _is_null(value)]
    return found[-1] if found else None


def from_node(node: yaml.Node, file: str, schema: Schema) -> tuple[dict[str, Given], list[Fault]]:
    """The settings in a mapping of a file, and the faults of its form."""
    walk = _Walk(file, schema)
    walk.section(node, "")
    return walk.found, walk.faults


def _entries(
    node: yaml.Node, section: str, schema: Schema, file: str
) -> tuple[dict[str, dict[str, Given]], list[Fault]]:
    entries: dict[str, dict[str, Given]] = {}
    around = _Walk(file, schema)
    if not isinstance(node, yaml.MappingNode):
        around.fault(section, node, f"it is {_kind(node)}, not a mapping", "write names below it, one a line")
        return {}, around.faults
    for key, name, value, first in keys_of(node):
        path = _join(section, name or "")
        if name is None or first is not None or not _ENTRY.fullmatch(name):
            text = "is here twice" if first is not None else "is not a name of letters, digits, - and _"
            around.fault(path, key, text, "rename it")
            continue
        entries[name], faults = from_node(value, file, schema)
        around.faults += [
            msgspec.structs.replace(fault, key=f"{path}.{fault.key}".removesuffix(".")) for fault in faults
        ]
    return entries, around.faults


def _parse(data: bytes, name: str, schema: Schema) -> tuple[dict[str, Given], list[Fault]]:
    try:
        root = yaml.compose(data, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeError) as error:
        return {}, [_not_yaml(error, name)]
    except RecursionError:
        return {}, [Fault(key="", source=name, message="is nested too deeply", hint="is it the right file?")]
    walk = _Walk(name, schema)
    if root is not None and not _is_null(root):
        walk.section(root, "")
    return walk.found, walk.faults


def _not_yaml(error: Exception, name: str) -> Fault:
    """What YAML says, without its excerpts, since these may hold a password."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it holds characters that text can't have"
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    text = f"is not YAML: {_QUOTED.sub('something', problem)}"
    return Fault(key="", source=place, message=text, hint="correct the line, or the one before it")


class _Walk:
    """Goes through a document along the settings there are; what isn't known isn't entered."""

    def __init__(self, name: str, schema: Schema) -> None:
        self._name = name
        self._schema = schema
        self.found: dict[str, Given] = {}
        self.faults: list[Fault] = []

    def section(self, node: yaml.Node, path: str) -> None:
        """A mapping whose keys are settings or sections."""
        if not isinstance(node, yaml.MappingNode):
            what = "the document" if not path else "it"
            hint = f"write keys below it, like {self._schema.sections[path][0]}: ..."
            self.fault(path, node, f"{what} is {_kind(node)}, not a mapping", hint)
            return
        for key, name, value, first in keys_of(node):
            if name is None:
                self.fault(path, key, f"a key is {_kind(key)}, not a word", "write one key per line")
            elif first is not None:
                text = f"is here twice, first in line {first}"
                self.fault(_join(path, name), key, text, "keep one of them")
            else:
                self._entry(path, name, key, value)

    def _entry(self, section: str, name: str, key: yaml.Node, value: yaml.Node) -> None:
        path = _join(section, name)
        if path in self._schema.entries:
            return  # `entries_of_file` reads them
        if path in self._schema.sections and name:
            if not _is_null(value):
                self.section(value, path)
        elif path not in self._schema.settings:
            self.fault(path, key, "there is no such setting", _meant(self._schema, section, name))
        elif self._schema.settings[path].kind in ("list", "mapping"):
            self._several(path, value)
        elif not isinstance(value, yaml.ScalarNode) or value.tag not in _SCALARS:
            self.fault(path, value, f"it is {_kind(value)}, not a plain value", "give one value")
        else:
            self.found[path] = Given(None if _is_null(value) else value.value, self._place(value))

    def _several(self, path: str, node: yaml.Node) -> None:
        """A list of plain values, or a mapping to plain values: kept as JSON."""
        is_list = self._schema.settings[path].kind == "list"
        if not isinstance(node, yaml.SequenceNode if is_list else yaml.MappingNode):
            wanted = "a list" if is_list else "a mapping"
            self.fault(path, node, f"it is {_kind(node)}, not {wanted}", "write an entry per line below it")
            return
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        for part in parts:
            if not isinstance(part, yaml.ScalarNode) or part.tag not in _SCALARS:
                self.fault(path, part, f"an entry is {_kind(part)}, not a plain value", "give plain values")
                return
        texts = [str(part.value) for part in parts]
        value = texts if is_list else dict(zip(texts[::2], texts[1::2], strict=True))
        self.found[path] = Given(msgspec.json.encode(value).decode(), self._place(node))

    def _place(self, node: yaml.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"

    def fault(self, path: str, node: yaml.Node, message: str, hint: str) -> None:
        """Add what is wrong at a place of the document."""
        self.faults.append(Fault(key=path, source=self._place(node), message=message, hint=hint))


def _join(section: str, name: str) -> str:
    shown = redact(name)
    if len(shown) > _NAME_MAX or not shown.isprintable():
        shown = ascii(shown[:_NAME_MAX])
    return f"{section}.{shown}" if section else shown


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _CORE + "null"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a plain value" if node.tag in _SCALARS else "a value with a tag"


def _meant(schema: Schema, section: str, name: str) -> str:
    """Say which setting it was most likely: of the same section, or else of another."""
    known = (*schema.sections[section], *(() if section else schema.entries))
    if near := nearest(name, known):
        return f"did you mean {_join(section, near)}?"
    for path in (*schema.settings, *schema.sections, *schema.entries):
        if path and path.rpartition(".")[2] == name:
            return f"did you mean {path}?"
    if near := nearest(_join(section, name), schema.settings):
        return f"did you mean {near}?"
    return f"known are {', '.join(known)}"
