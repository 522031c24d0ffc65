"""The text of a page is made once for all who ask together, and anew for whoever comes later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client.registry import Collector

from forebay.observe.metrics_page import MetricsPage
from forebay.observe.shown_metrics import ShownMetric, shown_number


class Asked(Collector):
    """Shows how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self) -> Iterator[ShownMetric]:
        self.count += 1
        yield shown_number("forebay_http_connections", self.count)


async def test_those_who_scrape_together_share_a_text_and_later_ones_get_another() -> None:
    asked = Asked()
    page = MetricsPage(asked)

    async def scrape(*, open_metrics: bool) -> bytes:
        return page.shared_text(open_metrics=open_metrics)

    together = await asyncio.gather(*(scrape(open_metrics=False) for _ in range(20)))
    assert len(set(together)) == asked.count == 1
    assert b"forebay_http_connections 2.0" in await scrape(open_metrics=True)
    await asyncio.sleep(0)
    assert b"forebay_http_connections 3.0" in await scrape(open_metrics=False)
