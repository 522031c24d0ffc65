"""Writes the Grafana dashboard in deploy/grafana; `--check` only says whether it is up to date."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent.parent / "deploy" / "grafana" / "forebay.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
SHARED = "max by (queue, group)"
"""Servers show the same snapshot: the largest is the number."""
Q = '{queue=~"$queue"}'
RATE = "[$__rate_interval]"


class Query(NamedTuple):
    """One expression, and how its series are called."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A panel; `unit` is Grafana's name for it."""

    title: str
    unit: str
    queries: Sequence[Query]
    text: str = ""
    kind: str = "timeseries"
    width: int = 8


def stat(title: str, expr: str, unit: str = "short", text: str = "") -> Panel:
    """One number."""
    return Panel(title, unit, [Query(expr, title)], text, "stat", 4)


def graph(title: str, unit: str, *queries: tuple[str, str], text: str = "") -> Panel:
    """Lines over time."""
    return Panel(title, unit, [Query(*query) for query in queries], text)


def by_queue(metric: str, *, rate: bool = False) -> str:
    """A number of queues and groups, once whatever how many servers show it."""
    return f"{SHARED} (rate({metric}{Q}{RATE}))" if rate else f"{SHARED} ({metric}{Q})"


def rates(metric: str, *labels: str) -> str:
    """How fast a counter of each process grows, all processes together."""
    return f"sum by ({', '.join(labels)}) (rate({metric}{RATE}))"


def p95(metric: str, *labels: str) -> str:
    """The 95th percentile of a histogram."""
    by = ", ".join(("le", *labels))
    return f"histogram_quantile(0.95, sum by ({by}) (rate({metric}_bucket{RATE})))"


QUEUE_AND_GROUP = "{{queue}} · {{group}}"
ROWS: dict[str, list[Panel]] = {
    "Now": [
        stat("Ready", f"sum({by_queue('forebay_queue_ready')})"),
        stat("Leased", f"sum({by_queue('forebay_queue_leased')})"),
        stat("Cold", f"sum({by_queue('forebay_queue_cold')})"),
        stat("Dead letters", f"sum({by_queue('forebay_queue_dead')})"),
        stat("Oldest", f"max(forebay_queue_oldest_age_seconds{Q}) or vector(0)", "s"),
        stat(
            "Unaccounted",
            f"sum(abs({by_queue('forebay_queue_difference')}))",
            text="Messages of the ledger that are nowhere: anything but 0 is a loss.",
        ),
    ],
    "Queues": [
        graph("Ready", "short", (by_queue("forebay_queue_ready"), QUEUE_AND_GROUP)),
        graph("Oldest message", "s", (by_queue("forebay_queue_oldest_age_seconds"), QUEUE_AND_GROUP)),
        graph(
            "In and out",
            "cps",
            (by_queue("forebay_queue_accepted_total", rate=True), f"{QUEUE_AND_GROUP} in"),
            (by_queue("forebay_queue_done_total", rate=True), f"{QUEUE_AND_GROUP} done"),
        ),
        graph(
            "Fill of the warm tier",
            "percentunit",
            (f"{by_queue('forebay_queue_warm')} / {by_queue('forebay_queue_warm_limit')}", QUEUE_AND_GROUP),
        ),
        graph("Cold backlog", "short", (by_queue("forebay_queue_cold"), QUEUE_AND_GROUP)),
        graph(
            "Leased, delayed, dead",
            "short",
            (by_queue("forebay_queue_leased"), f"{QUEUE_AND_GROUP} leased"),
            (by_queue("forebay_queue_delayed"), f"{QUEUE_AND_GROUP} delayed"),
            (by_queue("forebay_queue_dead"), f"{QUEUE_AND_GROUP} dead"),
        ),
    ],
    "Flows": [
        graph(
            "Waiting by flow",
            "short",
            (
                f"max by (queue, flow, action) (forebay_flow_warm{Q} + forebay_flow_cold{Q})",
                "{{flow}} · {{action}}",
            ),
        ),
        graph("Lag on Spark", "short", ("forebay_flow_lag", "{{flow}}")),
        graph(
            "Rows on Spark",
            "cps",
            (rates("forebay_flow_rows_in_total", "flow"), "{{flow}} in"),
            (rates("forebay_flow_rows_out_total", "flow"), "{{flow}} out"),
            (rates("forebay_flow_rows_dead_total", "flow"), "{{flow}} dead"),
        ),
        graph("Batches, p95", "s", (p95("forebay_flow_batch_seconds", "flow"), "{{flow}}")),
        graph("Running", "short", ("forebay_flow_running", "{{flow}}")),
        graph("Not archived yet", "short", ("forebay_archive_lag", "{{queue}}")),
    ],
    "Deliveries": [
        graph(
            "Requests",
            "reqps",
            (
                rates("forebay_delivery_requests_total", "destination", "outcome"),
                "{{destination}} · {{outcome}}",
            ),
        ),
        graph(
            "Duration, p95", "s", (p95("forebay_delivery_latency_seconds", "destination"), "{{destination}}")
        ),
        graph(
            "Breakers that aren't closed",
            "short",
            (
                'max by (destination, state) (forebay_delivery_breaker_state{state!="closed"})',
                "{{destination}} · {{state}}",
            ),
        ),
        graph(
            "Dead letters",
            "cps",
            (
                rates("forebay_delivery_dead_letters_total", "destination", "error_type"),
                "{{destination}} · {{error_type}}",
            ),
        ),
        graph("In hand", "short", ("sum by (destination) (forebay_delivery_in_hand)", "{{destination}}")),
        graph(
            "Relay: fill",
            "percentunit",
            ("forebay_relay_queue_utilization_ratio", "{{instance}} · {{destination}}"),
        ),
        graph(
            "Relay: in and out",
            "reqps",
            (rates("forebay_relay_queue_push_total", "destination"), "{{destination}} in"),
            (rates("forebay_relay_queue_delivered_total", "destination"), "{{destination}} delivered"),
            (
                rates("forebay_relay_queue_dropped_total", "destination", "reason"),
                "{{destination}} dropped: {{reason}}",
            ),
        ),
    ],
    "Spool and outages": [
        graph(
            "Log and warm tier",
            "short",
            ("forebay_database_healthy", "{{instance}} log"),
            ("forebay_warm_healthy", "{{instance}} warm tier"),
            text="1 while it is there.",
        ),
        graph("Spooled messages", "short", ("forebay_spool_pending", "{{instance}}")),
        graph("Replayed", "cps", (f"rate(forebay_spool_flushed_total{RATE})", "{{instance}}")),
        graph("Spool on disk", "bytes", ("forebay_spool_bytes", "{{instance}}")),
        graph("Set aside", "short", ("forebay_spool_failed", "{{instance}}")),
        graph("Outages", "short", ("increase(forebay_outages_total[1h])", "{{instance}}")),
    ],
    "The snapshot": [
        graph(
            "Age",
            "s",
            ("forebay_snapshot_age_seconds", "{{instance}}"),
            ("forebay_snapshot_part_age_seconds", "{{instance}} · {{part}}"),
        ),
        graph(
            "Stale",
            "short",
            ("forebay_snapshot_stale", "{{instance}}"),
            ("forebay_snapshot_part_stale", "{{instance}} · {{part}}"),
        ),
        graph("Refreshes", "cps", (rates("forebay_snapshot_refreshes_total", "status"), "{{status}}")),
        graph(
            "Duration",
            "s",
            ("forebay_snapshot_refresh_duration_seconds", "{{instance}}"),
            ("max(forebay_snapshot_aggregation_seconds)", "the current one"),
        ),
        graph(
            "Series",
            "short",
            ("max(forebay_snapshot_series)", "series"),
            ("max by (family) (forebay_snapshot_folded_series)", "folded: {{family}}"),
        ),
        graph(
            "Rounds on Spark",
            "s",
            ("forebay_fold_seconds", "a round takes"),
            ("time() - forebay_fold_taken_at_seconds", "since the last one"),
        ),
    ],
    "Workers": [
        graph(
            "Workers and job processors",
            "short",
            ("sum(queue_running_workers)", "workers"),
            ("sum(queue_running_job_processors)", "job processors"),
            ("sum by (queue) (forebay_manager_processors_wanted)", "{{queue}} wanted"),
        ),
        graph("Tasks in hand", "short", ("sum by (queue) (queue_tasks_in_progress)", "{{queue}}")),
        graph(
            "Tasks",
            "cps",
            (rates("forebay_worker_tasks_processed_total", "queue"), "{{queue}} processed"),
            (rates("forebay_worker_tasks_failed_total", "queue"), "{{queue}} failed"),
            (rates("forebay_worker_tasks_retried_total", "queue"), "{{queue}} retried"),
        ),
        graph("Cycles, p95", "s", (p95("queue_job_processor_cycle_duration_seconds", "queue"), "{{queue}}")),
        graph(
            "Handlers that don't end", "short", ("sum by (queue) (forebay_worker_stragglers)", "{{queue}}")
        ),
        graph("Managers that lead", "short", ("sum(forebay_manager_leading)", "leading")),
    ],
    "Servers": [
        graph("Requests", "reqps", (rates("forebay_http_requests_total", "status"), "{{status}}")),
        graph("Duration, p95", "s", (p95("forebay_http_request_seconds", "route"), "{{route}}")),
        graph("Messages", "cps", (rates("forebay_messages_total", "what"), "{{what}}")),
        graph("Memory", "bytes", ("process_resident_memory_bytes", "{{job}} {{instance}}")),
        graph("Processor", "percentunit", (f"rate(process_cpu_seconds_total{RATE})", "{{job}} {{instance}}")),
        graph("Versions", "short", ("count by (version) (forebay_build_info)", "{{version}}")),
    ],
}


def dashboard() -> dict[str, Any]:
    """The whole of it, as Grafana imports it."""
    return {
        "title": "Forebay",
        "uid": "forebay",
        "tags": ["forebay"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "queue", "type": "query", "label": "Queue", "datasource": SOURCE,
                    "query": {"query": "label_values(forebay_queue_ready, queue)", "refId": "queue"},
                    "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "sort": 1,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": list(_panels()),
    }  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row, panels in ROWS.items():
        place = _place(0, top, COLUMNS, 1)
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": place}
        number, top, left = number + 1, top + 1, 0
        height = 4 if panels[0].kind == "stat" else 8
        for panel in panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + height
            yield _panel(number, panel, _place(left, top, panel.width, height))
            number, left = number + 1, left + panel.width
        top += height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    lines = panel.kind == "timeseries"
    targets = [
        {"refId": chr(ord("A") + at), "expr": query.expr, "legendFormat": query.legend, "datasource": SOURCE}
        for at, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if lines else {},
        "targets": targets,
    }


def main() -> int:
    """Write it, or check it."""
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    if FILE.exists() and FILE.read_text("utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"stale: {FILE.name}")  # noqa: T201 - its output
        return 1
    FILE.write_text(text, "utf-8")
    print(f"written: {FILE.name}")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())
