"""Numbers for Prometheus: our own, then those under the names that dashboards of Queen know."""

from __future__ import annotations

from typing import Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.routes import queen_route
from forebay.observe.metrics_page import CLASSIC


async def prometheus(call: Call) -> Answer:
    """All of them; asks neither the log nor the warm tier."""
    call.key.check("read")
    text = call.context.queen_page.text(open_metrics=False)
    return Answer(text.encode(), media=CLASSIC)


ROUTES: Final = (
    queen_route("GET", "/metrics/prometheus", prometheus, "Numbers under Queen's names", scope="read"),
)
