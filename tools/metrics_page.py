"""The page of docs/reference about metrics, from the one table; `reference.py` writes it."""

from collections.abc import Iterator

from forebay.observe.metric_table import SECTIONS, Metric


def metrics_page(note: str) -> Iterator[str]:
    """The page."""
    yield f"{note}\n# Metrics\n"
    yield "All metrics of all programs. Servers and relays have them on `/metrics` of their port; workers,"
    yield "Managers, `forebay deliver`, pipelines and `forebay snapshot run` where `--metrics HOST:PORT`"
    yield "says; under `forebay up`, unless told otherwise, a pipeline at 127.0.0.1:6633, a worker at"
    yield "127.0.0.1:6634, and the job on Spark at 127.0.0.1:6635. Every program answers in OpenMetrics or in"
    yield "the classic text, as `Accept` asks."
    yield "[Metrics](../explanation/metrics.md) explains which instance shows what, and how fresh it is."
    for section in SECTIONS:
        yield f"\n## {section.title}\n\n{section.text}\n"
        yield "| metric | type | labels | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, section.metrics)
    yield ""


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.shown_kind} | {labels} | {metric.help} |"
