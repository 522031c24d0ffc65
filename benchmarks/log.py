"""Benchmark of the logs: `python -m benchmarks.log`, or `make bench-log`.

It starts a PostgreSQL of its own, prints a table, and ends with one line of JSON that has all
figures. The exit status is 1 when a required figure falls short. A rate is the median over rounds;
a ratio is the median of the ratios of the rounds, in which the contestants take turns.
"""

import argparse
import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from os import cpu_count, getloadavg
from time import perf_counter
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.bench import FULL, POSTGRES_FLAVOUR, POSTGRES_SETTINGS, QUICK, Bench, progress_bar
from benchmarks.parts import append, backlog, cycle, snapshot, sqlite
from benchmarks.verdict import Figure, Figures, exit_status, requirement_of, shortfalls
from tests.servers.process import ServerUnavailableError

PARTS: Final[Mapping[str, Callable[[Bench], Awaitable[Figures]]]] = {
    "append": append.run,
    "cycle": cycle.run,
    "sqlite": sqlite.run,
    "idle_in_transaction": snapshot.run,
    "backlog": backlog.run,
}
_LOOP: Final = "uvloop" if find_spec("uvloop") else "asyncio"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    options = _options(arguments)
    start, load = perf_counter(), _load()
    try:
        parts = _run(options.only or list(PARTS), quick=options.quick)
    except ServerUnavailableError as error:
        print(f"there is no PostgreSQL to measure: {error}", file=sys.stderr)
        return 2
    missed = shortfalls(parts)
    _print_table(parts)
    for line in missed:
        print(f"falls short: {line}")
    report = {
        "benchmark": "log",
        "quick": options.quick,
        "machine": {**_machine(), "load_before": load, "load_after": _load()},
        **parts,
        "shortfalls": missed,
        "seconds": round(perf_counter() - start, 1),
    }
    print(msgspec.json.encode(report).decode())
    return exit_status(missed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=_first_line())
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument(
        "--only", action="append", choices=list(PARTS), metavar="NAME",
        help=f"run only this part (may be given again): {', '.join(PARTS)}",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _run(names: Sequence[str], *, quick: bool) -> dict[str, Figures]:
    async def measure(bench: Bench) -> dict[str, Figures]:
        return {name: await PARTS[name](bench) for name in names}

    # A loop's factory, not its name: uvloop need not be there.
    factory = import_module("uvloop").new_event_loop if _LOOP == "uvloop" else None
    with (
        progress_bar() as progress,
        Bench(QUICK if quick else FULL, progress) as bench,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        return runner.run(measure(bench))


def _print_table(parts: Mapping[str, Figures]) -> None:
    table = Table(title="The logs, in messages per second")
    table.add_column("part")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("required")
    for part, figures in parts.items():
        for name, value in figures.items():
            requirement = requirement_of(part, name)
            met = "" if requirement is None or requirement.is_met(value) else ": falls short"
            bound = "" if requirement is None else requirement.bound() + met
            table.add_row(part, name, _shown(value), bound)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def _shown(value: Figure) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"{min(value):.2f} to {max(value):.2f}"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "loop": _LOOP,
        "cores": cpu_count(),
        "postgres": POSTGRES_FLAVOUR,
        "postgres_settings": POSTGRES_SETTINGS,
    }


def _load() -> float:
    """How many processes want a core, over the last minute: what else goes on tells on figures."""
    return round(getloadavg()[0], 2)


def _first_line() -> str:
    return (__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
