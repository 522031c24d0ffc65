"""The routes, by what they are about."""

from forebay.api.queen import table as queen
from forebay.api.routes import (
    blocks,
    destinations,
    documents,
    groups,
    health,
    letters,
    log,
    looking,
    page,
    pushing,
    queue_metrics,
    queues,
    taking,
    workers,
)

ROUTES = (
    *pushing.ROUTES,
    *taking.ROUTES,
    *queues.ROUTES,
    *groups.ROUTES,
    *letters.ROUTES,
    *looking.ROUTES,
    *blocks.ROUTES,
    *log.ROUTES,
    *workers.ROUTES,
    *destinations.ROUTES,
    *health.ROUTES,
    *queue_metrics.ROUTES,
    *page.ROUTES,
    *documents.ROUTES,
    *queen.ROUTES,
)
"""All that is served."""

__all__ = ["ROUTES"]
