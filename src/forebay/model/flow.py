"""Flows: what a message belongs to and what is to be done with it, as its headers say.

Invariants: the flow of a message is read from its headers alone; the counts of a block add up to its length.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from forebay.model.block import Block
from forebay.model.columns import Headers


class Flow(msgspec.Struct, frozen=True, order=True):
    """The labels of a message; what it does not say is empty."""

    name: str = ""
    type: str = ""
    action: str = ""


NO_FLOW = Flow()
"""The flow of messages that name none."""


def flow_of(headers: Headers | None) -> Flow:
    """Return the flow that headers name in `flow`, `flow_type` and `action`."""
    if not headers:
        return NO_FLOW
    return Flow(headers.get("flow", ""), headers.get("flow_type", ""), headers.get("action", ""))


READING: Final = "flows"
"""The label of a queue that says which of its groups are flows: by group, what `flow_of` reads."""


def flow_reading(labels: Mapping[str, Any], group: str) -> Flow | None:
    """Return the flow that a group of a queue is, by the queue's labels, if it is one."""
    groups = labels.get(READING)
    found = groups.get(group) if isinstance(groups, dict) else None
    is_flow = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return flow_of(found) if is_flow else None


def flow_counts(block: Block) -> dict[Flow, int]:
    """Count the messages of a block by flow: by its table of headers, not message by message."""
    table = block.header_table or [{}]
    uses = {0: len(block)} if block.header_index is None else Counter(block.header_index)
    counts: dict[Flow, int] = {}
    for entry, count in uses.items():
        if count:
            flow = flow_of(table[entry])
            counts[flow] = counts.get(flow, 0) + count
    return counts
