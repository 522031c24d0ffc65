"""The contest: who takes part, on which broker, and how the programs are run and compared.

Durability is what each is used with: Valkey's append-only file is synced every second, PostgreSQL and SQLite
sync every commit. Ours syncs every commit, too.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from benchmarks.bench import Bench, checkpoint
from benchmarks.drive import Rates, best, interleave, turns_of, typical
from benchmarks.verdict import Figure, Figures
from tests.servers.process import ServerUnavailableError

OURS: Final = ("forebay", "forebay_singly")
"""With a handler for batches, and with one that is called for each task."""
RIVALS_VARIABLE: Final = "RIVALS"
"""Names the folder of the rivals' environments, where it isn't that of this one."""
_TURN_SECONDS_MAX: Final = 120.0
_TASKS_FIRST: Final = 300
"""Of the turn that finds out how fast a rival is."""
_TASKS_MIN: Final = 100
_ROOT: Final = Path(__file__).parents[2]


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """A program, and what it is run with."""

    module: str
    broker: str
    """`valkey`, `postgres` or `sqlite`."""
    kind: str = ""
    environment: str | None = "rivals"
    """Whose packages it needs; None for ours."""
    tasks_first: int = _TASKS_FIRST


class Run(msgspec.Struct, frozen=True):
    """What a program says at its end."""

    tasks: int
    seconds: float
    setting: str

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.tasks / self.seconds


def _rival(name: str, broker: str, kind: str = "", **options: Any) -> Contestant:
    return Contestant(module=f"benchmarks.work.rivals.{name}", broker=broker, kind=kind, **options)


def _ours(kind: str) -> Contestant:
    module = "benchmarks.work.ours"
    return Contestant(module=module, broker="sqlite", kind=kind, environment=None, tasks_first=20_000)


CONTESTANTS: Final = {
    "forebay": _ours("batch"),
    "forebay_singly": _ours("singly"),
    "celery": _rival("celery_valkey", "valkey"),
    "dramatiq": _rival("dramatiq_valkey", "valkey"),
    "rq": _rival("rq_valkey", "valkey"),
    "taskiq_stream": _rival("taskiq_valkey", "valkey", "stream"),
    "taskiq_list": _rival("taskiq_valkey", "valkey", "list"),
    "arq": _rival("arq_valkey", "valkey", environment="rivals-arq"),
    "huey_valkey": _rival("huey_any", "valkey", "valkey"),
    "huey_sqlite": _rival("huey_any", "sqlite", "sqlite"),
    "procrastinate": _rival("procrastinate_postgres", "postgres"),
    "pgqueuer": _rival("pgqueuer_postgres", "postgres", tasks_first=5_000),
}
_DURABILITY: Final = {
    "valkey": "Valkey, AOF every second",
    "postgres": "PostgreSQL, every commit synced",
    "sqlite": "SQLite, every commit synced",
}


async def run(bench: Bench) -> Figures:
    """Let all have their turns, in rounds."""
    for one in CONTESTANTS.values():
        _python(one.environment)  # better now than in the middle of it
    turns = {name: _Turns(bench, one) for name, one in CONTESTANTS.items()}
    with bench.part("tasks", turns_of(len(turns), bench.pace.rounds)):
        rates = await interleave(turns, bench.pace.rounds, bench.pace.seconds, bench.note)
    rivals = [name for name in CONTESTANTS if name not in OURS]
    by_round = ratios_to_the_best(rates, OURS[0], rivals)
    figures: dict[str, Figure] = {}
    for name, one in CONTESTANTS.items():
        figures[f"{name}_per_second"] = typical(rates[name])
        figures[f"{name}_with"] = (
            f"{_DURABILITY[one.broker]}; {turns[name].setting}; {turns[name].tasks:,} tasks"
        )
    return {
        **figures,
        "best_rival": best(rates, rivals),
        "ratio": round(median(by_round), 2),
        "ratio_by_round": by_round,
    }


def ratios_to_the_best(rates: Rates, ours: str, rivals: Sequence[str]) -> list[float]:
    """In each round: how many times faster than the rival that was best in it."""
    return [
        round(rate / max(rates[name][number] for name in rivals), 2)
        for number, rate in enumerate(rates[ours])
    ]


class _Turns:
    """The turns of one contestant; those before tell how many tasks the next one has."""

    def __init__(self, bench: Bench, contestant: Contestant) -> None:
        self._bench = bench
        self._contestant = contestant
        self._rate = 0.0
        self.tasks = contestant.tasks_first
        self.setting = ""

    async def __call__(self, seconds: float) -> float:
        """Run the program for about so long; tasks per second."""
        if self._rate:
            self.tasks = max(_TASKS_MIN, int(self._rate * seconds) // 100 * 100)
        with self._broker() as broker:
            if self._contestant.broker == "postgres":
                await checkpoint(broker)
            found = await run_program(self._contestant, broker, self.tasks)
        self._rate, self.setting = max(self._rate, found.rate), found.setting
        return found.rate

    @contextmanager
    def _broker(self) -> Iterator[str]:
        """An empty one."""
        bench = self._bench
        if self._contestant.broker == "valkey":
            bench.valkey.flush()
            yield bench.valkey.url
        elif self._contestant.broker == "postgres":
            dsn = bench.server.create_database()
            try:
                yield dsn
            finally:
                bench.server.drop_database(dsn)
        else:
            with bench.folder() as folder:
                yield str(folder / "tasks.db")


async def run_program(contestant: Contestant, broker: str, tasks: int) -> Run:
    """Run one program to its end; raises what it wrote if it fails."""
    process = await asyncio.create_subprocess_exec(
        str(_python(contestant.environment)),
        *("-m", contestant.module, "--broker", broker, "--tasks", str(tasks), "--kind", contestant.kind),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TURN_SECONDS_MAX):
            said, wrong = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or not said:
        text = wrong.decode(errors="replace")[-2_000:]
        raise RuntimeError(f"{contestant.module} ended with status {process.returncode}:\n{text}")
    return msgspec.json.decode(said.splitlines()[-1], type=Run)


def _python(environment: str | None) -> Path:
    if environment is None:
        return Path(sys.executable)
    python = Path(os.environ.get(RIVALS_VARIABLE, sys.prefix)) / environment / "bin/python"
    if not python.exists():
        raise ServerUnavailableError(f"the rivals are not installed in {python}: `make bench-work` does it")
    return python
