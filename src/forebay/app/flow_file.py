"""A file of flows with its destinations, whose settings are those of the section `deliver`."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from forebay.app.configuring.faults import Given
from forebay.app.configuring.reading import DEFAULT, build
from forebay.app.configuring.schema import DELIVERY
from forebay.app.configuring.sources import from_node
from forebay.deliver.settings import QueueDeliverySettings
from forebay.spark.flows.destination import SettingFault
from forebay.spark.flows.spec import read_flows
from forebay.spark.flows.values import PipelineSpec

__all__ = ["read_delivery", "read_flow_file"]


def read_flow_file(path: str | Path) -> PipelineSpec:
    """The flows in a file. `InvalidFlows` has all that is wrong with them."""
    return read_flows(path, read_delivery)


def read_delivery(
    node: yaml.Node, file: str, queue: str
) -> tuple[QueueDeliverySettings | None, Sequence[SettingFault]]:
    """The delivery that a sink describes, or all that is wrong with it."""
    given, faults = from_node(node, file, DELIVERY)
    made, _, faults = build(DELIVERY, ({"queue": Given(queue, DEFAULT)}, given), faults, source=file)
    assert made is None or isinstance(made, QueueDeliverySettings), "what the schema is of"
    return made, [SettingFault(fault.key, fault.message, fault.hint) for fault in faults]
