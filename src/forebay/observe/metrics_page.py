"""The text of `/metrics`: families of several sources, as the scraper asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from forebay.observe.process_metrics import ProcessMetrics
from forebay.observe.shown_metrics import ShownMetric

__all__ = ["CLASSIC", "END", "OPEN_METRICS", "MetricsPage", "prefers_open_metrics", "takes_gzip"]

CLASSIC: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = "# EOF\n"
"""The last line of OpenMetrics."""


class MetricsPage(Collector):
    """Process and build, then the sources in their order; the first to show a name keeps it.

    A user's registry may show its process, too.
    """

    def __init__(self, *sources: Collector | CollectorRegistry) -> None:
        self._sources: Sequence[Collector | CollectorRegistry] = (ProcessMetrics(), *sources)
        self._shared: dict[bool, bytes] = {}

    def collect(self) -> Iterator[ShownMetric]:
        """Read all sources now."""
        seen = set[str]()
        for source in self._sources:
            for found in source.collect():
                if found.name not in seen:
                    seen.add(found.name)
                    yield found

    def text(self, *, open_metrics: bool) -> str:
        """All families, without the last line of OpenMetrics."""
        if open_metrics:
            text: str = generate_open_metrics(self).decode()  # type: ignore[no-untyped-call]
            return text.removesuffix(END)
        return generate_latest(self).decode()

    def shared_text(self, *, open_metrics: bool) -> bytes:
        """The same, made once for all who ask in one turn of the event loop; it is most of a scrape."""
        text = self._shared.get(open_metrics)
        if text is None:
            text = self._shared[open_metrics] = self.text(open_metrics=open_metrics).encode()
            asyncio.get_running_loop().call_soon(self._shared.clear)
        return text

    def answer(self, accept: str) -> tuple[str, str]:
        """The whole page, and its media type, for an `Accept` header."""
        if prefers_open_metrics(accept):
            return self.text(open_metrics=True) + END, OPEN_METRICS
        return self.text(open_metrics=False), CLASSIC


def prefers_open_metrics(accept: str) -> bool:
    """Tell if an `Accept` header asks for OpenMetrics at least as much as for plain text."""
    quality = _qualities(accept)
    wanted = quality.get("application/openmetrics-text", 0.0)
    return 0 < wanted >= quality.get("text/plain", 0.0)


def takes_gzip(accept_encoding: str) -> bool:
    """Tell if an `Accept-Encoding` header names gzip, and doesn't refuse it."""
    return _qualities(accept_encoding).get("gzip", 0.0) > 0


def _qualities(header: str) -> dict[str, float]:
    found = dict[str, float]()
    for wish in header.lower().split(","):
        name, *parameters = (part.strip() for part in wish.split(";"))
        given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        found[name] = max(found.get(name, 0.0), _number(given))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
