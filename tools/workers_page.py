"""The reference page of workers: what they, their handlers and a Manager can be told, with the defaults."""

import inspect
from collections.abc import Callable, Iterator

import msgspec

from forebay.app.cli import build_parser
from forebay.work.allocation import Rule
from forebay.work.managing import ManagerSettings
from forebay.work.paths import FIELDS, NUMBERED
from forebay.work.settings import Backoff, BindingSettings, WorkerSettings
from forebay.work.worker import Worker

Docs = Callable[[type[msgspec.Struct]], dict[str, str]]
"""The text of each field of a struct."""


def workers_page(docs: Docs) -> Iterator[str]:
    """Its lines, without the note at the top."""
    yield "\n# Workers\n"
    yield "[Run workers](../how-to/run-workers.md) and"
    yield "[share them with a Manager](../how-to/run-a-manager.md) show how. Import it from `forebay.work`.\n"
    yield "## A queue: BindingSettings\n"
    yield '`@handler("emails", batch_size=50)`, `Binding(settings=BindingSettings(batch_size=50))`, or the'
    yield "[settings of a contract](contract.md#settings).\n"
    yield from _table(BindingSettings, docs)
    yield "\n### Backoff\n"
    yield f"{_summary(Backoff)}\n"
    yield from _table(Backoff, docs)
    yield "\n## A worker: WorkerSettings\n"
    yield "`Worker(store, bindings, settings=WorkerSettings(threads=4))`\n"
    yield from _table(WorkerSettings, docs)
    name = inspect.signature(Worker).parameters["name"].default
    yield f"\nUnless given, the `name` of a worker is `{name}`, and `processors` as many as its queues may"
    yield "have together."
    yield "\n## Settings by path\n"
    yield "In the file that `forebay worker --config` names. `{service}` is what `--service` says, else"
    yield f"`{_service()}`; `{{name}}` is a queue, or the worker for all of its queues.\n"
    yield "| path | setting | default |\n|---|---|---|"
    meaning = (
        "`processors` of the worker, in all: any of its queues may have them, unless its own path says less"
    )
    yield f"| `{{service}}/worker/queue/{{worker}}/max_processors` | {meaning} | as made |"
    for path, field in FIELDS.items():
        yield f"| `{{service}}/worker/queue/{{name}}/{path}` | `{field}` | {_as_bound(field)} |"
    for field in NUMBERED:
        path = f"`{{service}}/worker/queue/{{name}}/queue/{{id}}/{field}`"
        yield f"| {path} | `{field}`, by the queue's number | {_as_bound(field)} |"
    yield "\n## A Manager: ManagerSettings\n"
    yield "`Manager(store, settings=ManagerSettings(weights={'invoices': 3}))`\n"
    yield from _table(ManagerSettings, docs)
    yield "\n### Rule\n"
    yield "From `forebay.work.allocation`.\n"
    yield from _table(Rule, docs)
    yield ""


def _table(struct: type[msgspec.Struct], docs: Docs) -> Iterator[str]:
    texts = docs(struct)
    yield "| setting | default | meaning |\n|---|---|---|"
    for field in msgspec.structs.fields(struct):
        made = field.default_factory is not msgspec.NODEFAULT
        default = field.default_factory() if made else field.default
        shown = "see below" if isinstance(default, msgspec.Struct) else f"`{default!r}`"
        yield f"| `{field.name}` | {shown} | {texts.get(field.name, '')} |"


def _summary(struct: type[msgspec.Struct]) -> str:
    return (inspect.getdoc(struct) or "").partition("\n")[0]


def _as_bound(field: str) -> str:
    return f"as bound, else `{getattr(BindingSettings(), field)!r}`"


def _service() -> str:
    arguments = build_parser().parse_args(["worker", "app:worker"])
    return str(arguments.service)
