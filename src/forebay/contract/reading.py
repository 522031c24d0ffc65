"""From a file to a contract: queues, fields and settings, and everything that is wrong with them.

Invariants: a contract that is returned has no fault; whatever it names can be generated, and no two of its
names meet in Python.
"""

from pathlib import Path
from typing import Final

import yaml

from forebay.contract.errors import Fault, InvalidContract, InvalidFile
from forebay.contract.kinds import KINDS
from forebay.contract.naming import RESERVED_FIELDS, RESERVED_QUEUES, class_name, name_fault, python_name
from forebay.contract.nodes import Document, excerpt, is_null, nearest
from forebay.contract.tuning import read_settings
from forebay.contract.values import Contract, Field, FieldType, QueueContract
from forebay.contract.versions import is_version
from forebay.model import QUEUE_NUMBER_MAX

__all__ = ["FIELDS_MAX", "FILE_BYTES_MAX", "QUEUES_MAX", "parse_contract", "read_contract", "read_text"]

FILE_BYTES_MAX: Final = 1 << 20
QUEUES_MAX: Final = 1_000
FIELDS_MAX: Final = 256
"""Fields of one queue."""

_KEYS: Final = ("version", "queues")
_QUEUE_KEYS: Final = ("id", "name", "fields", "settings")
_FIELD_KEYS: Final = ("name", "type")
_QUEUES_HINT: Final = "list them under `queues:`"
_NAME_HINT: Final = "use another name, of letters, digits and underscores"
_ID_HINT: Final = f"give it a number from 1 to {QUEUE_NUMBER_MAX}"
_ID_DIGITS: Final = 9
_TYPES: Final = ", ".join(KINDS)
_MEANT: Final = {
    "str": "string",
    "text": "string",
    "bytes": "[]byte",
    "integer": "int",
    "boolean": "bool",
    "long": "int64",
}


def read_contract(path: str | Path) -> Contract:
    """The contract in a file. `InvalidContract` has all that is wrong with it."""
    return parse_contract(read_text(path, InvalidContract), str(path))


def read_text(path: str | Path, error: type[InvalidFile]) -> str:
    """The text of a file of that kind; `error` says why it can't be read."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as caught:
        why = getattr(caught, "strerror", None) or "its name is none that a file can have"
        hint = "name a file that is there and readable"
        raise error([_fault(name, f"it can't be read: {why}", hint)]) from None
    if len(data) > FILE_BYTES_MAX:
        raise error([_fault(name, f"it is over {FILE_BYTES_MAX} bytes long", "is it the right file?")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as caught:
        before = data[: caught.start]
        line, column = before.count(b"\n") + 1, caught.start - before.rfind(b"\n")
        raise error([_fault(name, "it is not UTF-8", "save it as UTF-8", line, column)]) from None


def parse_contract(text: str, name: str = "contract") -> Contract:
    """The contract in a text; `name` is what faults call it."""
    document = Document(name)
    root = document.compose(text)
    contract = Contract(None, ()) if document.faults and root is None else _Reader(document).contract(root)
    if document.faults:
        raise InvalidContract(sorted(document.faults, key=lambda fault: (fault.line, fault.column)))
    return contract


def _fault(name: str, message: str, hint: str, line: int = 1, column: int = 1) -> Fault:
    return Fault(file=name, line=line, column=column, message=message, hint=hint)


class _Reader:
    """One walk through a document. What is returned counts only when nothing was noted."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fault = document.fault
        self._ids: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._classes: dict[str, str] = {}

    def contract(self, root: yaml.Node | None) -> Contract:
        """The contract whose document this is."""
        if root is None or is_null(root):
            self._fault(root, "no queues defined", _QUEUES_HINT)
            return Contract(None, ())
        entries = self._document.entries(root, "the document", _KEYS)
        if not isinstance(root, yaml.MappingNode):
            return Contract(None, ())
        version = self._version(entries.get("version"))
        listed = entries.get("queues")
        if _is_empty(listed):
            self._fault(listed or root, "no queues defined", _QUEUES_HINT)
        nodes = self._document.items(listed, "queues", QUEUES_MAX)
        return Contract(version, tuple(self._queue(node, index) for index, node in enumerate(nodes, 1)))

    def _version(self, node: yaml.Node | None) -> str | None:
        text = self._document.text(node, "version")
        if text and not is_version(text):
            self._fault(node, f"version {excerpt(text)} is not a version", "write it as 2, or as 1.4")
        return text or None

    def _queue(self, node: yaml.Node, index: int) -> QueueContract:
        label = _label(node, index)
        entries = self._document.entries(node, label, _QUEUE_KEYS)
        if not isinstance(node, yaml.MappingNode):
            return QueueContract(0, "", ())
        name = self._queue_name(node, entries.get("name"), label)
        id = self._id(node, entries.get("id"), label)
        fields = self._fields(node, entries.get("fields"), label)
        settings = read_settings(self._document, entries.get("settings"), label)
        return QueueContract(id, name, fields, settings)

    def _id(self, queue: yaml.Node, node: yaml.Node | None, label: str) -> int:
        text = self._document.text(node, f"{label}: id")
        if not text or node is None:
            if text is not None:
                self._fault(node or queue, f"{label} has no id", _ID_HINT)
            return 0
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            self._fault(node, f"{label}: id {excerpt(text)} is not a number", _ID_HINT)
            return 0
        if text.startswith("-"):
            self._fault(node, f"{label}: id {excerpt(text)[1:-1]} is negative", _ID_HINT)
            return 0
        if len(digits) > _ID_DIGITS or not 1 <= int(digits) <= QUEUE_NUMBER_MAX:
            self._fault(node, f"{label}: id {excerpt(text)[1:-1]} is out of range", _ID_HINT)
            return 0
        id = int(digits)
        if id in self._ids:
            self._fault(node, f"duplicate queue id: {id}", f"line {self._ids[id]} has it, too")
        self._ids.setdefault(id, node.start_mark.line + 1)
        return id

    def _queue_name(self, queue: yaml.Node, node: yaml.Node | None, label: str) -> str:
        name = self._document.text(node, f"{label}: name")
        if not name or node is None:
            if name is not None:
                self._fault(node or queue, "queue name is empty", "give it a name, such as emails")
            return ""
        if why := name_fault(name, RESERVED_QUEUES):
            self._fault(node, f"queue {excerpt(name)} {why}", _NAME_HINT)
        elif name in self._names:
            self._fault(node, f"duplicate queue name: {name}", f"line {self._names[name]} has it, too")
        elif other := self._classes.get(class_name(name)):
            text = f"queue '{name}' collides with '{other}': both are {class_name(name)} in Python"
            self._fault(node, text, "rename one of them")
        else:
            self._names[name] = node.start_mark.line + 1
            self._classes[class_name(name)] = name
        return name

    def _fields(self, queue: yaml.Node, node: yaml.Node | None, label: str) -> tuple[Field, ...]:
        if _is_empty(node):
            self._fault(node or queue, f"{label} has no fields", "list them under `fields:`")
        nodes = self._document.items(node, f"{label}: fields", FIELDS_MAX)
        known: dict[str, str] = {}
        return tuple(self._field(node, f"{label}:", known) for node in nodes)

    def _field(self, node: yaml.Node, label: str, known: dict[str, str]) -> Field:
        written = _written(node)
        shown = f"{label} field {excerpt(written)}" if written else f"{label} field"
        entries = self._document.entries(node, shown, _FIELD_KEYS)
        if not isinstance(node, yaml.MappingNode):
            return Field("", "int")
        name = self._field_name(node, entries.get("name"), label, known)
        return Field(name, self._type(node, entries.get("type"), shown))

    def _field_name(self, field: yaml.Node, node: yaml.Node | None, label: str, known: dict[str, str]) -> str:
        name = self._document.text(node, f"{label} field name")
        if not name or node is None:
            if name is not None:
                self._fault(node or field, f"{label} field name is empty", "give it a name, such as user_id")
            return ""
        other = known.get(python_name(name))
        if other == name:
            self._fault(node, f"{label} duplicate field name: {name}", "rename one of them")
        elif why := name_fault(name, RESERVED_FIELDS):
            self._fault(node, f"{label} field {excerpt(name)} {why}", _NAME_HINT)
        elif other is not None:
            text = f"{label} field '{name}' collides with '{other}': both are {python_name(name)} in Python"
            self._fault(node, text, "rename one of them")
        known.setdefault(python_name(name), name)
        return name

    def _type(self, field: yaml.Node, node: yaml.Node | None, label: str) -> FieldType:
        text = self._document.text(node, f"{label}: type")
        if text is not None and text not in KINDS:
            meant = _MEANT.get(text.lower()) or (None if "[" in text else nearest(text, KINDS))
            hint = f"did you mean {meant}?" if meant else f"write one of {_TYPES}"
            self._fault(node or field, f"{label}: invalid type {excerpt(text)}", hint)
            return "int"
        return text or "int"


def _is_empty(node: yaml.Node | None) -> bool:
    """Whether there is no list, or one without entries."""
    return node is None or is_null(node) or (isinstance(node, yaml.SequenceNode) and not node.value)


def _written(node: yaml.Node) -> str:
    """The name in a mapping, before it is read: for what its faults are called."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "name" and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return ""


def _label(node: yaml.Node, index: int) -> str:
    name = _written(node)
    return f"queue {excerpt(name)}" if name else f"queue {index}"
