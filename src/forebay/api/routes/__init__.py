"""The routes, by what they are about."""

from forebay.api.queen import (
    acking,
    analytics,
    configuring,
    handling,
    inspecting,
    newest,
    popping,
    prometheus,
    regrouping,
    resources,
    statuses,
    transacting,
)
from forebay.api.queen import groups as queen_groups
from forebay.api.queen import letters as queen_letters
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
    *resources.ROUTES,
    *statuses.ROUTES,
    *newest.ROUTES,
    *analytics.ROUTES,
    *prometheus.ROUTES,
    *inspecting.ROUTES,
    *handling.ROUTES,
    *queen_letters.ROUTES,
    *queen_groups.ROUTES,
    *regrouping.ROUTES,
)
"""All that is served."""

__all__ = ["ROUTES"]
