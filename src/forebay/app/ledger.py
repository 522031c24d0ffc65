"""The ledger for people and programs: where all messages of all groups are."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from forebay.log.values import Stats
from forebay.model import to_datetime

__all__ = ["ledger_rows", "ledger_table"]

PLACES = (
    "spooled", "ready", "delayed", "held", "deferred", "answered", "done", "dead", "purged", "expired",
    "corrupt",
)  # fmt: skip
RARE = ("spooled", "delayed", "answered", "purged", "expired", "corrupt")


def ledger_rows(stats: Stats) -> list[dict[str, Any]]:
    """One row per queue and group, for programs."""
    return [
        {
            "queue": queue.queue.name,
            "group": group.group.name,
            "accepted": group.accepted,
            **{place: getattr(group, place) for place in PLACES},
            "difference": group.difference,
        }
        for queue in stats.queues
        for group in queue.groups
    ]


def ledger_table(stats: Stats) -> Table:
    """The ledger as a table; a difference stands out, places that are rarely used show when they are."""
    taken = to_datetime(stats.at).strftime("%Y-%m-%d %H:%M:%S UTC")
    table = Table(title=f"Ledger, {taken}", title_justify="left", box=SIMPLE_HEAD, padding=0)
    groups = [(queue.queue.name, group) for queue in stats.queues for group in queue.groups]
    places = [p for p in PLACES if p not in RARE or any(getattr(group, p) for _, group in groups)]
    for column in ("queue", "group"):
        table.add_column(column, overflow="fold", min_width=7)
    for column in ("accepted", *places, "difference"):
        table.add_column(f" {column}", justify="right", no_wrap=True)
    for queue, group in groups:
        figures = [f"{getattr(group, place):,}" for place in ("accepted", *places)]
        style = "green" if group.difference == 0 else "bold red"
        table.add_row(queue, group.group.name, *figures, f"[{style}]{group.difference:,}[/]")
    return table
