"""How a benchmark is run and reported: options, the loop, a table, one line of JSON, the exit status."""

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
from benchmarks.verdict import Figure, Figures, Requirement, exit_status, requirement_of, shortfalls
from tests.servers.process import ServerUnavailableError

Parts = Mapping[str, Callable[[Bench], Awaitable[Figures]]]
"""The parts of a benchmark, by name."""

_LOOP: Final = "uvloop" if find_spec("uvloop") else "asyncio"


def run_benchmark(
    name: str,
    title: str,
    parts: Parts,
    requirements: Sequence[Requirement],
    arguments: Sequence[str] | None,
) -> int:
    """Run the parts that were asked for; return the exit status."""
    options = _options(name, parts, arguments)
    start, load = perf_counter(), _load()
    try:
        figures = _run(parts, options.only or list(parts), quick=options.quick)
    except ServerUnavailableError as error:
        print(f"there is no server to measure: {error}", file=sys.stderr)
        return 2
    missed = shortfalls(figures, requirements)
    _print_table(title, figures, requirements)
    for line in missed:
        print(f"falls short: {line}")
    report = {
        "benchmark": name,
        "quick": options.quick,
        "machine": {**_machine(), "load_before": load, "load_after": _load()},
        **figures,
        "shortfalls": missed,
        "seconds": round(perf_counter() - start, 1),
    }
    print(msgspec.json.encode(report).decode())
    return exit_status(missed)


def _options(name: str, parts: Parts, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument(
        "--only", action="append", choices=list(parts), metavar="NAME",
        help=f"run only this part (may be given again): {', '.join(parts)}",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _run(parts: Parts, names: Sequence[str], *, quick: bool) -> dict[str, Figures]:
    async def measure(bench: Bench) -> dict[str, Figures]:
        return {name: await parts[name](bench) for name in names}

    # A loop's factory, not its name: uvloop need not be there.
    factory = import_module("uvloop").new_event_loop if _LOOP == "uvloop" else None
    with (
        progress_bar() as progress,
        Bench(QUICK if quick else FULL, progress) as bench,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        return runner.run(measure(bench))


def _print_table(title: str, parts: Mapping[str, Figures], requirements: Sequence[Requirement]) -> None:
    table = Table(title=title)
    table.add_column("part")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("required")
    for part, figures in parts.items():
        for name, value in figures.items():
            requirement = requirement_of(part, name, requirements)
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
        "loop_seconds": _loop_seconds(),
        "postgres": POSTGRES_FLAVOUR,
        "postgres_settings": POSTGRES_SETTINGS,
    }


def _loop_seconds() -> float:
    """How long a plain loop takes: how fast the machine is at this moment, to compare runs by."""
    start, total = perf_counter(), 0
    for number in range(3_000_000):
        total += number
    return round(perf_counter() - start, 3)


def _load() -> float:
    """How many processes want a core, over the last minute: what else goes on tells on figures."""
    return round(getloadavg()[0], 2)
