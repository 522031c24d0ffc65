"""Which plugin provides the action class of a queue, from the configuration and from contracts."""

from __future__ import annotations

from pathlib import Path

from forebay.contract.reading import read_contract
from forebay.observe.settings import MetricsSettings

__all__ = ["read_plugins"]


def read_plugins(settings: MetricsSettings) -> dict[str, str]:
    """Plugins by queue. What the configuration names itself goes before what a contract says."""
    found: dict[str, str] = {}
    for file in settings.contracts:
        contract, stem = read_contract(file), Path(file).stem
        plugin = stem if contract.version is None else f"{stem}:{contract.version}"
        found.update((queue.name, plugin) for queue in contract.queues)
    return {**found, **settings.plugins}
