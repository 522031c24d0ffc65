"""The end of a flow at a destination, as a file says it: an entry of the section `deliver`, or a URL alone.

Whoever reads the settings of a server reads these, too (`ReadDelivery`): one grammar, the same faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

import msgspec
import yaml

from forebay.contract.nodes import is_null, keys_of
from forebay.deliver.settings import QueueDeliverySettings

__all__ = ["KEY", "ReadDelivery", "SettingFault", "is_destination", "node_at", "out_queue", "written_out"]

KEY: Final = "destination"
_URL: Final = "url"
_TEXT: Final = "tag:yaml.org,2002:str"


class SettingFault(msgspec.Struct, frozen=True):
    """A fault of one setting of a delivery."""

    path: str
    """Of the setting, from the entry on: `destination.url`."""
    message: str
    hint: str | None


class ReadDelivery(Protocol):
    """Reads one delivery."""

    def __call__(
        self, node: yaml.Node, file: str, queue: str
    ) -> tuple[QueueDeliverySettings | None, Sequence[SettingFault]]:
        """The settings in a mapping, or all that is wrong; `queue` is delivered where it names none."""
        ...


def out_queue(flow: str) -> str:
    """The queue of a flow that ends at a destination, where its file names none."""
    return f"{flow}-out"


def is_destination(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    """Tell if a sink names a destination."""
    return isinstance(node, yaml.MappingNode) and any(name == KEY for _, name, _, _ in keys_of(node))


def written_out(node: yaml.MappingNode) -> yaml.MappingNode:
    """The same sink with `destination: URL` as `destination: {url: URL}`, each at its place."""
    pairs = [(key, _mapping(value) if key.value == KEY else value) for key, value in node.value]
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def _mapping(node: yaml.Node) -> yaml.Node:
    if not isinstance(node, yaml.ScalarNode) or is_null(node):
        return node
    key = yaml.ScalarNode(_TEXT, _URL, node.start_mark, node.start_mark)
    return yaml.MappingNode("tag:yaml.org,2002:map", [(key, node)], node.start_mark, node.end_mark)


def node_at(node: yaml.Node, path: str) -> yaml.Node:
    """The value at a path of keys, or the deepest one on the way to it."""
    for part in path.split("."):
        if not isinstance(node, yaml.MappingNode):
            return node
        found = [value for _, name, value, _ in keys_of(node) if name == part]
        if not found:
            return node
        node = found[0]
    return node
