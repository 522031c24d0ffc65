"""The page of docs/reference about the numbers of all programs but the server; `reference.py` writes it."""

from collections.abc import Iterator
from time import monotonic

from prometheus_client.registry import Collector

from forebay.deliver.queue_metrics import QueueDeliveryMetrics
from forebay.spark.archive.numbers import ArchiveNumbers
from forebay.spark.flows.numbers import PipelineNumbers
from forebay.work.manager_numbers import ManagerNumbers
from forebay.work.numbers import Numbers


def metrics_page(note: str) -> Iterator[str]:
    """The page."""
    yield f"{note}\n# Metrics of workers, Managers, deliveries, flows and the archive\n"
    yield "What `forebay worker`, `forebay manager`, `forebay deliver` and `forebay pipeline run` serve"
    yield "with `--metrics HOST:PORT`; under `forebay up`, unless told otherwise, a pipeline at"
    yield "127.0.0.1:6633, and a worker at 127.0.0.1:6634."
    yield "The server's are on its own `/metrics`.\n"
    yield "## Workers\n"
    yield "[Run workers](../how-to/run-workers.md). Their names are those that users of the original know.\n"
    yield from _table(Numbers())
    yield "\n## Managers\n"
    yield "[Share workers among queues](../how-to/run-a-manager.md).\n"
    yield from _table(ManagerNumbers(monotonic))
    yield "\n## Deliveries\n"
    yield "[Deliver a queue as webhooks](../how-to/deliver-a-queue-as-webhooks.md): of `forebay deliver`, of"
    yield "`forebay pipeline run` with flows that end at a destination, and of a server that delivers queues"
    yield "itself, on its own `/metrics`.\n"
    yield from _table(QueueDeliveryMetrics())
    yield "\n## Flows\n"
    yield "[Run flows](../how-to/run-flows.md). Those that read no queue have no lag.\n"
    yield from _table(PipelineNumbers())
    yield "\n## The archive\n"
    yield "[Archive messages](../how-to/archive.md): of a pipeline that runs it on a schedule.\n"
    yield from _table(ArchiveNumbers())
    yield ""


def _table(numbers: Collector) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in numbers.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"
