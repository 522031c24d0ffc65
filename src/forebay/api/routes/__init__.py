"""The routes, by what they are about."""

from forebay.api.queen import acking, configuring, cycling, maintenance, popping, streams, traces, transacting
from forebay.api.queen import pushing as queen_pushing
from forebay.api.routes import blocks, documents, groups, health, letters, looking, pushing, queues, taking

ROUTES = (
    *pushing.ROUTES,
    *taking.ROUTES,
    *queues.ROUTES,
    *groups.ROUTES,
    *letters.ROUTES,
    *looking.ROUTES,
    *blocks.ROUTES,
    *health.ROUTES,
    *documents.ROUTES,
    *configuring.ROUTES,
    *queen_pushing.ROUTES,
    *popping.ROUTES,
    *acking.ROUTES,
    *transacting.ROUTES,
    *maintenance.ROUTES,
    *traces.ROUTES,
    *streams.ROUTES,
    *cycling.ROUTES,
)
"""All that is served."""

__all__ = ["ROUTES"]
