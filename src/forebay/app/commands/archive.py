"""`forebay archive`: messages and their outcomes as Parquet, before retention drops them.

Spark is started when there is enough to do for it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.app.commands.arguments import duration, place
from forebay.app.commands.opened import declare_store, declare_text, shown_url, store_url
from forebay.app.commands.output import print_json, print_line, print_table, time_text, warn
from forebay.app.opening import is_server, open_log, split_warm
from forebay.log.values import Position, Start
from forebay.model import Misconfigured, Rejected, format_bytes, to_datetime
from forebay.spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.archive.folder import ArchiveFolder
    from forebay.spark.archive.job import QueueRan, Ran
    from forebay.spark.archive.manifest import Manifest
    from forebay.spark.archive.replaying import RangeWish

__all__ = [
    "compact",
    "declare_compact",
    "declare_list",
    "declare_replay",
    "declare_run",
    "declare_verify",
    "list_archive",
    "log_address",
    "replay",
    "run",
    "session_of",
    "verify",
]


_NEEDED: Final = "the archive needs Spark"
_MANY: Final = 200
"""Files that are verified without Spark."""


def _declare_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the archive's folder")


def declare_master(parser: argparse.ArgumentParser) -> None:
    """The argument of every command that may start Spark."""
    parser.add_argument(
        "--master", metavar="URL", help="a Spark cluster that sees the same folders (default: this machine)"
    )


def declare_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay archive run`."""
    _declare_path(parser)
    declare_store(parser)
    declare_master(parser)
    parser.add_argument(
        "--queue", metavar="NAME", action="append",
        help="a queue, or a pattern such as 'orders-*'; may be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--after", metavar="TIME", type=duration, default=300.0,
        help="how old messages must be that all groups have finished with (default: 5m)",
    )  # fmt: skip
    parser.add_argument(
        "--wait-max", metavar="TIME", type=duration, default=86_400.0,
        help="how old messages are when they are archived in any case (default: 24h)",
    )  # fmt: skip


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay archive list`."""
    _declare_path(parser)
    declare_text(parser)


def declare_verify(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay archive verify`."""
    declare_list(parser)
    declare_master(parser)


def declare_compact(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay archive compact`."""
    declare_verify(parser)


def declare_replay(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay archive replay`."""
    _declare_path(parser)
    declare_store(parser)
    declare_master(parser)
    parser.add_argument("--queue", metavar="NAME", required=True, help="the queue whose messages are read")
    parser.add_argument("--into", metavar="NAME", required=True, help="the queue that they go to")
    where = "earliest, latest, a time, or # with a sequence number"
    parser.add_argument("--from", dest="begin", metavar="PLACE", type=place, default="earliest", help=where)
    parser.add_argument(
        "--to", dest="end", metavar="PLACE", type=place, default="latest",
        help="the first that is not replayed; as --from",
    )  # fmt: skip
    parser.add_argument(
        "--again", metavar="NAME", default="",
        help="replay a range that was replayed before; another name for each time",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")


def session_of(arguments: argparse.Namespace) -> Callable[[], SparkSession]:
    """What starts Spark, when it is needed."""

    def start() -> SparkSession:
        from forebay.spark.session import session  # noqa: PLC0415 - only with the spark extra

        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        return session("forebay", master=arguments.master, settings=quiet)

    return start


def log_address(arguments: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The address of the log, and what opening it takes besides."""
    url = split_warm(store_url(arguments))[0]
    if url.partition("://")[0] == "memory":
        text = "memory:// is within one process, and Spark works in several"
        raise Misconfigured(text, hint="name a server, sqlite:///file.db or postgresql://...")
    key = arguments.key or os.environ.get("FOREBAY_KEY")
    return url, {"key": key} if key and is_server(url) else {}


@contextmanager
def _closing() -> Iterator[None]:
    """Close the logs that Spark's side has opened here."""
    require_spark(_NEEDED)
    from forebay.spark.logs import close_all  # noqa: PLC0415 - only with the spark extra

    try:
        yield
    finally:
        close_all()


def _folder(arguments: argparse.Namespace) -> ArchiveFolder:
    from forebay.spark.archive.folder import ArchiveFolder  # noqa: PLC0415 - only with the spark extra

    return ArchiveFolder(arguments.path)


def run(arguments: argparse.Namespace) -> int:
    """Archive what may be archived now; exit status 1 when something was gone before, or a queue failed."""
    with _closing():
        from forebay.spark.archive.job import ArchiveJob  # noqa: PLC0415 - only with the spark extra
        from forebay.spark.archive.planning import ArchiveSettings  # noqa: PLC0415 - likewise

        url, credentials = log_address(arguments)
        settings = ArchiveSettings(
            path=arguments.path, queues=tuple(arguments.queue or ("*",)), after=arguments.after,
            wait_max=arguments.wait_max,
        )  # fmt: skip
        ran = ArchiveJob(settings, open_log, url, **credentials).run_once(session_of(arguments))
    _print_ran(arguments, ran)
    return 0 if ran.is_clean else 1


def _print_ran(arguments: argparse.Namespace, ran: Ran) -> None:
    if arguments.json:
        print_json({"version": ran.version, "swept": ran.swept, "queues": ran.queues})
        return
    rows = [_row(each) for each in ran.queues]
    if rows:
        print_table(["queue", "archived", "outcomes", "files", "bytes", "up to", "lag", "lost"], rows)
    for each in ran.queues:
        if each.error:
            warn(f"{each.queue}: {each.error}")
        if each.lost:
            text = "were dropped, or could not be read, before they were archived"
            warn(f"{each.queue}: {each.lost:,} messages {text}; `forebay archive list` says which")
        if each.early:
            warn(f"{each.queue}: {each.early:,} messages were archived while groups were busy with them")
    warn(f"{ran.messages:,} messages were archived in {arguments.path}")


def _row(ran: QueueRan) -> tuple[object, ...]:
    size = format_bytes(ran.bytes)
    return (ran.queue, ran.messages, ran.outcomes, ran.files, size, ran.next - 1, ran.lag, ran.lost)


def list_archive(arguments: argparse.Namespace) -> int:
    """Print what an archive holds; exit status 1 when it has gaps."""
    require_spark(_NEEDED)
    manifest = _folder(arguments).require()
    if arguments.json:
        print_json(_listed(manifest))
        return 1 if manifest.gaps else 0
    rows = []
    for name, archived in sorted(manifest.queues.items()):
        files = manifest.of(name)
        days = f"{files[0].day} to {files[-1].day}" if files else ""
        size = format_bytes(sum(each.bytes for each in manifest.files if each.queue == name))
        lost = sum(map(len, manifest.gaps_of(name)))
        messages = sum(each.rows for each in files)
        rows.append((name, archived.start, archived.next - 1, messages, days, len(files), size, lost))
    print_table(["queue", "first", "last", "messages", "days", "files", "bytes", "lost"], rows)
    for gap in manifest.gaps:
        print_line(f"{gap.queue}: {gap.first:,} to {gap.last:,}: {gap.reason} ({time_text(gap.found_at)})")
    return 1 if manifest.gaps else 0


def _listed(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "queues": manifest.queues,
        "files": manifest.files,
        "gaps": manifest.gaps,
    }


def compact(arguments: argparse.Namespace) -> int:
    """Make few large files of many small ones."""
    with _closing():
        from forebay.spark.archive import upkeep  # noqa: PLC0415 - only with the spark extra

        folder = _folder(arguments)
        folder.require()
        done = upkeep.compact(folder, session_of(arguments))
    if arguments.json:
        print_json(done)
    else:
        warn(f"{done.before:,} files are {done.after:,} now; those that were replaced go with the next runs")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Compare the manifest with itself and with the files; exit status 1 when something is wrong."""
    with _closing():
        from forebay.spark.archive import upkeep  # noqa: PLC0415 - only with the spark extra

        folder = _folder(arguments)
        found = upkeep.verify(folder, session_of(arguments) if len(folder.require().files) > _MANY else None)
        files = len(folder.require().files)
    if arguments.json:
        print_json({"files": files, "faults": found})
    else:
        for text in found:
            print_line(text)
        warn(f"{files:,} files: {'all is sound' if not found else f'{len(found):,} faults'}")
    return 1 if found else 0


def replay(arguments: argparse.Namespace) -> int:
    """Put a range back into a queue, once."""
    with _closing():
        from forebay.spark.archive import replaying  # noqa: PLC0415 - only with the spark extra

        wish = _wish(arguments)
        planned = replaying.plan(open_log, wish)
        if arguments.json:
            print_json({"plan": planned, "messages": planned.messages, "dry_run": arguments.dry_run})
        said = f"{planned.messages:,} messages of {wish.queue} ({planned.first:,} to {planned.end - 1:,})"
        if planned.lost:
            warn(f"{planned.lost:,} messages of that range were dropped before they were archived")
        if planned.done:
            warn(f"{said} went into {wish.into} before; --again NAME does it once more")
        elif arguments.dry_run:
            warn(f"{said}, {planned.archived:,} from the archive, would go into {wish.into}")
        else:
            replaying.replay(session_of(arguments)(), wish, planned)
            warn(f"{said} are in {wish.into} of {shown_url(wish.url)}")
    return 0


def _wish(arguments: argparse.Namespace) -> RangeWish:
    from forebay.spark.archive import replaying  # noqa: PLC0415 - only with the spark extra

    url, credentials = log_address(arguments)
    return replaying.RangeWish(
        url=url, archive=arguments.path, queue=arguments.queue, into=arguments.into,
        begin=_place(arguments, arguments.begin, "starting"), end=_place(arguments, arguments.end, "ending"),
        again=arguments.again, credentials=credentials,
    )  # fmt: skip


def _place(arguments: argparse.Namespace, wanted: Start, side: str) -> dict[str, str]:
    """An option of the source: where to begin, or to end."""
    if isinstance(wanted, Position):
        return {f"{side}Offsets": msgspec.json.encode({arguments.queue: wanted.sequence}).decode()}
    if isinstance(wanted, int):
        return {f"{side}Timestamp": to_datetime(wanted).isoformat()}
    if (side, wanted) in (("starting", "latest"), ("ending", "earliest")):
        raise Rejected("that range is empty", hint="leave --from and --to out for all of it")
    return {}
