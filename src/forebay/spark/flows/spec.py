"""From a file to flows, and everything that is wrong with it, with its line and column.

Invariants: flows that are returned have no fault; names are unique, and no two flows read one queue as the
same group, nor one that another's destination is delivered as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import yaml

from forebay.contract.errors import InvalidFile
from forebay.contract.nodes import Document, excerpt, is_null, nearest
from forebay.contract.reading import read_text
from forebay.deliver.settings import QueueDeliverySettings
from forebay.model import Rejected, check_group_name, check_queue_name
from forebay.spark.addresses import shared_address
from forebay.spark.flows import parsing
from forebay.spark.flows.destination import ReadDelivery, is_destination, node_at, out_queue, written_out
from forebay.spark.flows.values import (
    ACTION_KINDS,
    CHECKPOINTS,
    FLOW_TYPES,
    Action,
    ActionKind,
    ArchiveSpec,
    DestinationSink,
    FlowSpec,
    FlowType,
    LetterSource,
    ParquetSink,
    PipelineSpec,
    QueueSink,
    QueueSource,
    Sink,
    Source,
    TimedSource,
)

__all__ = ["FLOWS_MAX", "InvalidFlows", "parse_flows", "read_flows"]

FLOWS_MAX: Final = 200
ACTIONS_MAX: Final = 50
COLUMNS_MAX: Final = 16

_KEYS: Final = ("store", "checkpoints", "flows", "archive")
_FLOW_KEYS: Final = (
    "name", "type", "source", "actions", "sink", "every", "once", "max_attempts", "contract",
)  # fmt: skip
_SOURCE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "TIMED_DATA_SOURCE": ("function",),
    "ON_ERROR_DATA_SOURCE": ("dead", "group", "rows_max"),
}
_QUEUE_KEYS: Final = ("queue", "group", "start", "rows_max", "on_loss")
_SINK_KEYS: Final = ("queue", "parquet", "partition_by", "destination")
_EXAMPLES: Final = {
    "queue": "{queue: orders}",
    "function": "{function: shop.flows:poll}",
    "dead": '{dead: "orders*"}',
}

T = TypeVar("T")


class InvalidFlows(InvalidFile):
    """Flows that can't be run; `faults` is all that is wrong with them, in the order of their lines."""

    what = "the flows are"


def read_flows(path: str | Path, read_delivery: ReadDelivery | None = None) -> PipelineSpec:
    """The flows in a file. `InvalidFlows` has all that is wrong with them."""
    return parse_flows(read_text(path, InvalidFlows), str(path), read_delivery)


def parse_flows(
    text: str, name: str = "flows.yaml", read_delivery: ReadDelivery | None = None
) -> PipelineSpec:
    """The flows in a text; `name` is what faults call it. Destinations need somebody who reads them."""
    document = Document(name)
    root = document.compose(text)
    if root is None and document.faults:
        raise InvalidFlows(document.faults)
    found = _Reader(document, name, read_delivery).pipeline(root)
    if document.faults:
        raise InvalidFlows(sorted(document.faults, key=lambda fault: (fault.line, fault.column)))
    return found


class _Reader:
    """One walk through a document. What is returned counts only when nothing was noted."""

    def __init__(self, document: Document, name: str, read_delivery: ReadDelivery | None) -> None:
        self._read_delivery = read_delivery
        self._document = document
        self._fault = document.fault
        self._name = name
        self._names: dict[str, int] = {}
        self._groups: dict[tuple[str, str], str] = {}
        self._deliveries: dict[str, QueueDeliverySettings] = {}

    def pipeline(self, root: yaml.Node | None) -> PipelineSpec:
        """All of it."""
        if root is None or is_null(root):
            self._fault(root, "there are no flows", "list them under `flows:`")
            return PipelineSpec(file=self._name, flows=())
        entries = self._document.entries(root, "the document", _KEYS)
        listed = entries.get("flows")
        if isinstance(root, yaml.MappingNode) and listed is None and "archive" not in entries:
            self._fault(root, "there are no flows", "list them under `flows:`")
        nodes = list(self._document.items(listed, "flows", FLOWS_MAX))
        return PipelineSpec(
            file=self._name,
            flows=tuple(self._flow(node, index) for index, node in enumerate(nodes, 1)),
            store=self._value(entries, "store", "store", shared_address, None),
            checkpoints=self._value(entries, "checkpoints", "checkpoints", parsing.folder, CHECKPOINTS),
            archive=self._archive(entries.get("archive")),
            deliveries=self._deliveries,
        )

    def _archive(self, node: yaml.Node | None) -> ArchiveSpec | None:
        if node is None or is_null(node):
            return None
        entries = self._document.entries(node, "archive", ("path", "queues", "every", "after", "wait_max"))
        if isinstance(node, yaml.MappingNode) and "path" not in entries:
            self._fault(node, "archive: it has no path", "name the folder that it is written to")
        names = self._document.items(entries.get("queues"), "archive: queues", FLOWS_MAX)
        queues = tuple(self._document.text(each, "archive: queues") or "" for each in names)
        age = parsing.seconds(0, 3650 * 86_400)
        return ArchiveSpec(
            path=self._value(entries, "path", "archive: path", parsing.folder, ""),
            queues=queues or ("*",),
            every=self._value(entries, "every", "archive: every", parsing.seconds(1, 86_400), 300.0),
            after=self._value(entries, "after", "archive: after", age, 300.0),
            wait_max=self._value(entries, "wait_max", "archive: wait_max", age, 86_400.0),
        )

    def _flow(self, node: yaml.Node, index: int) -> FlowSpec:
        label = _label(node, index)
        entries = self._document.entries(node, label, _FLOW_KEYS)
        kind = self._type(node, entries.get("type"), label)
        name = self._flow_name(node, entries.get("name"), label)
        found = FlowSpec(
            name=name,
            type=kind,
            source=self._source(node, entries.get("source"), label, kind, name),
            actions=self._actions(entries.get("actions"), label),
            sink=self._sink(node, entries.get("sink"), label, kind, name),
            every=self._every(node, entries, label, kind),
            once=self._value(entries, "once", f"{label}: once", parsing.switch, False),
            max_attempts=self._value(
                entries, "max_attempts", f"{label}: max_attempts", parsing.whole(1, 100), 3
            ),
            contract=self._value(entries, "contract", f"{label}: contract", parsing.folder, None),
            line=node.start_mark.line + 1,
            column=node.start_mark.column + 1,
        )
        self._check_ends(entries, label, found)
        return found

    def _check_ends(self, entries: Mapping[str, yaml.Node], label: str, flow: FlowSpec) -> None:
        """What only shows when source and sink are seen together."""
        source, sink = flow.source, flow.sink
        if isinstance(source, QueueSource) and source.queue:
            self._check_group(entries["source"], label, flow.name, (source.queue, source.group))
            if isinstance(sink, QueueSink) and sink.queue == source.queue:
                text = f"{label}: it writes to the queue that it reads"
                self._fault(entries["sink"], text, "name another queue")
        if isinstance(sink, DestinationSink):
            self._check_group(entries["sink"], label, flow.name, (sink.queue, sink.group))
        loops = isinstance(source, LetterSource) and isinstance(sink, QueueSink)
        if loops and parsing.matches(sink.queue, source.dead):  # type: ignore[union-attr]  # as loops says
            text = f"{label}: it would take the dead letters of the queue that it writes to"
            self._fault(entries["sink"], text, "name another queue, or narrow `dead`")
        if (
            not isinstance(source, QueueSource)
            and isinstance(sink, QueueSink)
            and sink.queue == flow.failed_queue
        ):
            text = f"{label}: queue '{sink.queue}' is for its rows that fail"
            self._fault(entries["sink"], text, "name another queue")
        if flow.contract is not None and not isinstance(source, QueueSource):
            text = f"{label}: a contract is for a flow that reads a queue"
            self._fault(entries["contract"], text, "leave it out")

    def _check_group(self, node: yaml.Node, label: str, flow: str, group: tuple[str, str]) -> None:
        """Refuse a group that another flow reads, or delivers: each would get a part of its messages."""
        other = self._groups.setdefault(group, flow)
        if other != flow:
            text = f"{label}: flow '{other}' reads queue '{group[0]}' as group '{group[1]}', too"
            self._fault(node, text, "give each a group of its own")

    def _type(self, flow: yaml.Node, node: yaml.Node | None, label: str) -> FlowType:
        text = self._document.text(node, f"{label}: type")
        if text in FLOW_TYPES:
            return text
        if text == "" and isinstance(flow, yaml.MappingNode):
            self._fault(node or flow, f"{label} has no type", f"give one of {', '.join(FLOW_TYPES)}")
        elif text:
            near = nearest(text.upper(), FLOW_TYPES)
            hint = f"did you mean {near}?" if near else f"give one of {', '.join(FLOW_TYPES)}"
            self._fault(node, f"{label}: there is no type {excerpt(text)}", hint)
        return "TRANSFORM"

    def _flow_name(self, flow: yaml.Node, node: yaml.Node | None, label: str) -> str:
        name = self._named(flow, node, label, "flow")
        if name in self._names:
            self._fault(node, f"two flows are called '{name}'", f"line {self._names[name]} has one, too")
        elif name and node is not None:
            self._names[name] = node.start_mark.line + 1
        return name

    def _named(self, parent: yaml.Node, node: yaml.Node | None, label: str, what: str) -> str:
        text = self._document.text(node, f"{label}: name")
        if not text or node is None:
            if text is not None and isinstance(parent, yaml.MappingNode):
                self._fault(node or parent, f"{label} has no name", f"give the {what} a name")
            return ""
        if not parsing.is_name(text):
            hint = "use letters, digits, dots, dashes and underscores, up to 100"
            self._fault(node, f"{label}: {excerpt(text)} can't be a name", hint)
        return text

    def _source(
        self, flow: yaml.Node, node: yaml.Node | None, label: str, kind: FlowType, name: str
    ) -> Source:
        keys = _SOURCE_KEYS.get(kind, _QUEUE_KEYS)
        empty = QueueSource(queue="", group="")
        if node is None or is_null(node):
            if isinstance(flow, yaml.MappingNode):
                example = _EXAMPLES[keys[0]]
                self._fault(node or flow, f"{label} has no source", f"write source: {example}")
            return empty
        what = f"{label}: source of a {kind}"
        entries = self._document.entries(node, what, keys)
        if not isinstance(node, yaml.MappingNode):
            return empty
        if keys[0] not in entries:
            self._fault(node, f"{what} has no {keys[0]}", f"write source: {_EXAMPLES[keys[0]]}")
            return empty
        rows_max = self._value(entries, "rows_max", f"{what}: rows_max", parsing.whole(1, 10_000_000), 10_000)
        if kind == "TIMED_DATA_SOURCE":
            return TimedSource(function=self._value(entries, "function", what, parsing.place, ""))
        if kind == "ON_ERROR_DATA_SOURCE":
            dead = self._value(entries, "dead", f"{what}: dead", parsing.pattern, "")
            group = self._value(entries, "group", f"{what}: group", parsing.pattern, "*")
            return LetterSource(dead=dead, group=group, rows_max=rows_max)
        return QueueSource(
            queue=self._value(entries, "queue", f"{what}: queue", check_queue_name, ""),
            group=self._value(entries, "group", f"{what}: group", check_group_name, name),
            start=self._value(entries, "start", f"{what}: start", parsing.start, "earliest"),
            rows_max=rows_max,
            on_loss=self._value(entries, "on_loss", f"{what}: on_loss", parsing.on_loss, "fail"),
        )

    def _actions(self, node: yaml.Node | None, label: str) -> tuple[Action, ...]:
        names: dict[str, int] = {}
        nodes = self._document.items(node, f"{label}: actions", ACTIONS_MAX)
        return tuple(
            self._action(each, f"{label}: action {index}", names) for index, each in enumerate(nodes, 1)
        )

    def _action(self, node: yaml.Node, label: str, names: dict[str, int]) -> Action:
        entries = self._document.entries(node, label, ("name", *ACTION_KINDS, "schema"))
        name = self._named(node, entries.get("name"), label, "action")
        if name in names:
            text = f"{label}: there is an action '{name}' already"
            self._fault(entries["name"], text, f"in line {names[name]}; give it another name")
        elif name:
            names[name] = node.start_mark.line + 1
        kinds: list[ActionKind] = [kind for kind in ACTION_KINDS if kind in entries]
        if len(kinds) != 1 and isinstance(node, yaml.MappingNode):
            said = f"says {' and '.join(kinds)}" if kinds else "says nothing to do"
            hint = "give one of: rows: module:function, sql: SELECT ..., dataframe: module:function"
            self._fault(node, f"{label} {said}", hint)
        kind = kinds[0] if kinds else "sql"
        if "schema" in entries and kind != "rows":
            self._fault(entries["schema"], f"{label}: schema is for rows alone", "leave it out")
        parse = parsing.sql if kind == "sql" else parsing.place
        return Action(
            name=name,
            kind=kind,
            text=self._value(entries, kind, f"{label}: {kind}", parse, ""),
            schema=self._value(entries, "schema", f"{label}: schema", parsing.sql, None),
            line=node.start_mark.line + 1,
            column=node.start_mark.column + 1,
        )

    def _sink(self, flow: yaml.Node, node: yaml.Node | None, label: str, kind: FlowType, name: str) -> Sink:
        wanted = "parquet" if kind == "DATA_SINK" else "queue"
        example = "{parquet: folder}" if kind == "DATA_SINK" else "{queue: orders-clean}"
        example += ' or {destination: "https://host/path"}'
        if node is None or is_null(node):
            if isinstance(flow, yaml.MappingNode):
                self._fault(node or flow, f"{label} has no sink", f"write sink: {example}")
            return QueueSink(queue="")
        if is_destination(node):
            return self._destination(node, label, name)
        entries = self._document.entries(node, f"{label}: sink", _SINK_KEYS)
        if not isinstance(node, yaml.MappingNode):
            return QueueSink(queue="")
        if wanted not in entries:
            self._fault(node, f"{label}: sink of a {kind} has no {wanted}", f"write sink: {example}")
        elif "queue" in entries and "parquet" in entries:
            self._fault(node, f"{label}: sink says queue and parquet", "give one of them")
        if wanted == "queue":
            if "partition_by" in entries:
                text = f"{label}: sink: partition_by is for files"
                self._fault(entries["partition_by"], text, "leave it out")
            return QueueSink(
                queue=self._value(entries, "queue", f"{label}: sink: queue", check_queue_name, "")
            )
        columns = self._document.items(entries.get("partition_by"), f"{label}: partition_by", COLUMNS_MAX)
        named = tuple(self._document.text(column, f"{label}: partition_by") or "" for column in columns)
        return ParquetSink(
            folder=self._value(entries, "parquet", f"{label}: sink: parquet", parsing.folder, ""),
            partition_by=named,
        )

    def _destination(self, node: yaml.MappingNode, label: str, name: str) -> Sink:
        """A sink with the settings of a delivery; those go by the name of the flow."""
        assert self._read_delivery is not None, "whoever reads flows with destinations says how"
        node = written_out(node)
        made, faults = self._read_delivery(node, self._name, out_queue(name))
        for fault in faults:
            self._fault(
                node_at(node, fault.path), f"{label}: sink: {fault.path}: {fault.message}", fault.hint
            )
        if made is None:
            return QueueSink(queue="")
        for key, check in (("queue", check_queue_name), ("group", check_group_name)):
            try:
                check(getattr(made, key))
            except Rejected as error:
                self._fault(node_at(node, key), f"{label}: sink: {key}: {error.message}", error.hint)
        self._deliveries[name] = made
        to = made.destination.address
        return DestinationSink(queue=made.queue, group=made.group, url=to.name, host=to.host)

    def _every(self, flow: yaml.Node, entries: Mapping[str, yaml.Node], label: str, kind: FlowType) -> float:
        timed = kind == "TIMED_DATA_SOURCE"
        if timed and "every" not in entries and isinstance(flow, yaml.MappingNode):
            self._fault(flow, f"{label}: nothing says how often it ticks", "write every: 30s")
        parse = parsing.seconds(0.1 if timed else 0, 366 * 86_400)
        return self._value(entries, "every", f"{label}: every", parse, 1.0)

    def _value(
        self, entries: Mapping[str, yaml.Node], key: str, what: str, parse: Callable[[str], Any], default: T
    ) -> T:
        """One value; its default when it isn't there, or is noted as wrong."""
        node = entries.get(key)
        if node is None or is_null(node):
            return default
        text = self._document.text(node, what)
        if text is None:
            return default
        try:
            return cast("T", parse(text))
        except Rejected as error:
            self._fault(node, f"{what}: {error.message}", error.hint)
            return default


def _label(node: yaml.Node, index: int) -> str:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "name" and isinstance(value, yaml.ScalarNode) and value.value:
                return f"flow {excerpt(value.value)}"
    return f"flow {index}"
