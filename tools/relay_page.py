"""The reference page of the relay: its settings with their flags, its answers, and its metrics."""

import inspect
from collections.abc import Callable, Iterator

import msgspec

from forebay.app.configuring.schema import RELAY, RELAY_DESTINATION, Setting
from forebay.app.configuring.texts import bound_text, shown
from forebay.app.relay_settings import RELAY_FLAGS

Docs = Callable[[type[msgspec.Struct]], dict[str, str]]
"""The text of each field of a struct."""
_SPECIAL = {"relay.to": "`--to`", "relay.insecure": "`--insecure`"}


def relay_page(docs: Docs) -> Iterator[str]:
    """Its lines, without the note at the top."""
    yield "\n# The relay\n"
    yield "[Put it in front of Prometheus](../how-to/put-it-in-front-of-prometheus.md) and"
    yield "[size a relay](../how-to/size-a-relay.md) show how. A flag comes before a variable,"
    yield "a variable before the file; `forebay config show --relay` shows all of them. The keys and flags of"
    yield "`exporter.queue` are those of metrics-governor.\n"
    yield "## Answers\n"
    yield "| request | answer |\n|---|---|"
    yield "| POST, PUT, PATCH or DELETE that is safe in the queue of every destination | 202, no body |"
    yield "| the same to a path of OTLP: `/v1/metrics`, `/v1/logs` or `/v1/traces` | 200; an empty message |"
    yield "| the queue is full, or the disk doesn't take it | 503 with `retry-after`; nothing is kept |"
    yield "| body over `body_bytes_max`, or over `max_bytes` of a queue | 413 |"
    yield "| head over `header_bytes_max` or `headers_max` | 431 |"
    yield "| not sent within `request_seconds` | 408 |"
    yield "| no token of `token_file`, where there is one | 401, for all but `/healthz` and `/readyz` |"
    yield "| `GET /healthz` | 200 while the process runs |"
    yield "| `GET /readyz` | 200 while requests can be taken, else 503 with the reasons |"
    yield "| `GET /metrics` | [metrics](metrics.md#relays) |"
    yield "| `GET /status` | each destination and its queue, as JSON; `forebay relay status` shows it |"
    yield from _settings(docs)
    yield from _destination(docs)
    yield "\n## Metrics\n"
    yield "[All of them](metrics.md#relays). `relay.metrics_prefix` replaces `forebay_relay`; with the prefix"
    yield "`metrics_governor` the names are those of metrics-governor."
    yield ""


def _settings(docs: Docs) -> Iterator[str]:
    section = None
    for setting in RELAY.settings.values():
        above = setting.path.rpartition(".")[0]
        if above != section:
            section = above
            yield f"\n## {section}\n\n{(inspect.getdoc(setting.owner) or '').partition(chr(10))[0]}\n"
            yield "| key | type | default | environment variable | flag | meaning |"
            yield "|---|---|---|---|---|---|"
        yield _row(setting, docs)


def _destination(docs: Docs) -> Iterator[str]:
    yield "\n## relay.destinations.NAME\n"
    yield "Destinations with options of their own, by names of your choice. The variable of a setting has the"
    yield "name in it: `FOREBAY_RELAY_DESTINATIONS_MIMIR_URL`.\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for setting in RELAY_DESTINATION.settings.values():
        is_secret = setting.is_secret or setting.default == ""
        default = "" if is_secret else f"`{shown(setting, setting.default)}`"
        yield f"| `{setting.path}` | {_kind(setting)} | {default} | {docs(setting.owner)[setting.name]} |"


def _kind(setting: Setting) -> str:
    kind = ", ".join(setting.choices) or setting.kind
    bounds = (("from", setting.least), ("to", setting.most))
    words = [kind, *(f"{word} {bound_text(setting, at)}" for word, at in bounds if at is not None)]
    return " ".join(words) + (" or none" if setting.optional else "")


def _row(setting: Setting, docs: Docs) -> str:
    flags = ", ".join(f"`{flag}`" for flag, path in RELAY_FLAGS.items() if path == setting.path)
    default = "" if setting.is_secret else f"`{shown(setting, setting.default)}`"
    meaning = docs(setting.owner)[setting.name]
    flags = _SPECIAL.get(setting.path, flags)
    return f"| `{setting.name}` | {_kind(setting)} | {default} | `{setting.variable}` | {flags} | {meaning} |"
