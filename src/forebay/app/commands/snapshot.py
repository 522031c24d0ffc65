"""`forebay snapshot run`, `show` and `shadow`: the rich series of queues, folded on Spark."""

import argparse
import asyncio
from typing import Any

from forebay.app.commands.arguments import address, count
from forebay.app.commands.output import print_json, print_line, print_table, time_text, warn
from forebay.app.configuring import declare_settings, load_from
from forebay.app.settings import Settings
from forebay.app.snapshots import RICH, open_snapshots
from forebay.observe.document import Document, decode_document
from forebay.observe.snapshot_store import Published
from forebay.spark.session import require_spark

__all__ = ["declare_run", "declare_shadow", "declare_show", "run", "shadow", "show"]

_PLACES = ("--data", "--store", "--warm")
"""The settings that say where the log is, and where the snapshot."""
_TRIES = 3
_SERIES_SHOWN = 10


def declare_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay snapshot run`."""
    declare_settings(parser, only=_PLACES)
    _declare_queues(parser)
    _declare_spark(parser)
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=address, help="serve /metrics and /healthz there"
    )


def declare_show(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay snapshot show`."""
    declare_settings(parser, only=_PLACES)
    parser.add_argument("--rich", action="store_true", help="only what Spark published")
    parser.add_argument("--all", action="store_true", help=f"all series, not {_SERIES_SHOWN} of a family")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def declare_shadow(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay snapshot shadow`."""
    declare_settings(parser, only=_PLACES)
    _declare_queues(parser)
    _declare_spark(parser)
    parser.add_argument(
        "--tries",
        metavar="N",
        type=count,
        default=_TRIES,
        help=f"a number that differs so many times in a row is reported (default: {_TRIES})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _declare_queues(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queues", metavar="REGEX", default=".*", help="the queues whose whole names match (default: all)"
    )


def _declare_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="the Spark master (default: this machine)")


def run(arguments: argparse.Namespace) -> int:
    """Fold and publish until a signal."""
    require_spark("rich series need Spark")
    from forebay.app.commands.snapshot_run import run_fold  # noqa: PLC0415 - Spark takes its time to load

    return run_fold(arguments)


def shadow(arguments: argparse.Namespace) -> int:
    """Fold, and compare; status 1 where something differs. Nothing is published."""
    require_spark("rich series need Spark")
    from forebay.app.commands.snapshot_shadow import compare  # noqa: PLC0415 - likewise

    found = compare(arguments)
    if arguments.json:
        print_json(found)
    else:
        from forebay.spark.snapshot.compare import shown_labels  # noqa: PLC0415 - likewise

        rows = [
            (
                each.against,
                each.series,
                shown_labels(each.labels),
                _number(each.folded),
                _number(each.expected),
            )
            for each in found.differences
        ]
        if rows:
            print_table(("against", "series", "labels", "folded", "expected"), rows)
        print_line(
            f"{len(rows)} differences: {found.series:,} series of {found.slices:,} slices, folded in "
            f"{found.rounds} rounds ({found.folded:,} slices looked at), and again in one go in "
            f"{found.batch_seconds:.1f} s"
        )
    return 1 if found.differences else 0


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.15g}"


def show(arguments: argparse.Namespace) -> int:
    """Print the current snapshot; status 1 where there is none."""
    settings = load_from(arguments).settings
    published = asyncio.run(_current(settings, RICH if arguments.rich else None))
    if published is None:
        warn(
            "there is no snapshot yet: `forebay serve` publishes it, and `forebay snapshot run` its rich part"
        )
        return 1
    document = decode_document(published.data)
    if arguments.json:
        print_json({"version": published.version, "meta": published.meta, "document": document})
        return 0
    meta = published.meta
    print_table(
        ("version", "generated", "source", "status", "series", "took", "owner", "fence"),
        [
            (
                f"v{published.version}", time_text(int(meta.generated_at_unix * 1_000_000)), meta.source,
                meta.status, meta.rows_total, f"{meta.aggregation_duration_ms / 1000:.3f} s", meta.owner,
                meta.fence,
            )
        ],
    )  # fmt: skip
    if meta.error_message is not None:
        warn(f"refreshes have failed since: {meta.error_message}")
    print_table(("family", "kind", "labels", "value"), _rows(document, everything=arguments.all))
    return 0


async def _current(settings: Settings, part: str | None) -> Published | None:
    async with open_snapshots(settings, part) as snapshots:
        return await snapshots.current()


def _rows(document: Document, *, everything: bool) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for family in document.families:
        shown = family.series if everything else family.series[:_SERIES_SHOWN]
        for values, number in shown:
            labels = ", ".join(
                f"{name}={value}" for name, value in zip(family.labels, values, strict=True) if value
            )
            value = time_text(int(number * 1_000_000)) if family.kind == "age" else _number(number)
            rows.append((family.name, family.kind, labels, value))
        if (more := len(family.series) - len(shown)) > 0:
            rows.append((family.name, family.kind, f"… {more:,} more: --all", ""))
        if family.folded:
            rows.append((family.name, family.kind, f"… {family.folded:,} are counted in `other`", ""))
    return rows
