"""The process that shows metrics: memory, processor, files, the garbage collector, and which build it is."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.registry import Collector

from forebay.observe.shown_metrics import ShownMetric, shown_numbers

__all__ = ["ProcessMetrics"]


class ProcessMetrics(Collector):
    """Prometheus' own names, with the help and units of the table."""

    def __init__(self) -> None:
        self._sources = (ProcessCollector(registry=None), GCCollector(registry=CollectorRegistry()))
        self._build = (version("forebay"), platform.python_version())

    def collect(self) -> Iterator[ShownMetric]:
        """Read them now."""
        yield shown_numbers("forebay_build_info", [(self._build, 1)])
        for source in self._sources:
            for found in source.collect():
                name = f"{found.name}_total" if found.type == "counter" else found.name
                rows = [(tuple(sample.labels.values()), sample.value) for sample in found.samples]
                yield shown_numbers(name, rows)
