"""The whole suite on a machine that is busy and stalls: `make stress`.

    python -m tests.stress [--rounds 3] [--seed N] [--stall-seconds 3] [-- tests and options of pytest]

Each round runs what `make test` runs, while one process for each core computes. Now and then the program
stops all processes of the run, or one of them, for up to some seconds. A stall may delay everything and must
change nothing, so a failure is a defect, of a test or of the code. Output goes to one file a round; the last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final
from uuid import uuid4

ROOT: Final = Path(__file__).parents[1]
MARK: Final = "STRESS_ROUND"
"""Processes of a round have this variable with the round's own value: also those that daemons start."""
PAUSE_SECONDS: Final = 4.0
"""Mean time between two stalls."""
STALL_SECONDS_MIN: Final = 0.2
PATIENCE: Final = ("--timeout", "1200", "-o", "faulthandler_timeout=2400")
"""Limits that only a hang reaches, however busy the machine is."""
PARALLEL: Final = ("--dist", "loadfile", "--no-loadscope-reorder")
SUITES: Final = (("-n", "auto", *PARALLEL, "-m", "not spark"), ("-n", "2", *PARALLEL, "-m", "spark"))
"""The two calls of pytest in `make test`."""
NO_TESTS: Final = 5
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def running_with(value: str) -> list[int]:
    """Give the processes that have this value of the mark and aren't stopped, but for this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):  # it has ended, or belongs to somebody else
            marked = f"{MARK}={value}".encode() in (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(") ")[2][0]
            if marked and state not in "TtZ":
                found.append(int(folder.name))
    return found


def send(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


@contextmanager
def stalls(value: str, rng: random.Random, seconds_max: float) -> Iterator[list[float]]:
    """Stop all marked processes, or one of them, time and again; give how long each stall took."""
    over, lengths = threading.Event(), list[float]()

    def stall() -> None:
        while not over.wait(rng.expovariate(1 / PAUSE_SECONDS)):
            processes = sorted(running_with(value))
            if processes and rng.random() < 0.5:
                processes = [rng.choice(processes)]
            for process in processes:
                send(process, signal.SIGSTOP)
            lengths.append(rng.uniform(STALL_SECONDS_MIN, seconds_max))
            over.wait(lengths[-1])
            for process in processes:
                send(process, signal.SIGCONT)

    thread = threading.Thread(target=stall, name="stalls")
    thread.start()
    try:
        yield lengths
    finally:
        over.set()
        thread.join()


def run_round(
    number: int, seed: int, stall_seconds: float, chosen: Sequence[str], folder: Path
) -> dict[str, object]:
    """Run the suite once; give what failed, and how long it took."""
    value, begun, status = uuid4().hex, monotonic(), 0
    output = folder / f"round-{number}.txt"
    environ = {**os.environ, "CI": "true", MARK: value}
    rng = random.Random(f"{seed}/{number}")
    with output.open("w") as file, stalls(value, rng, stall_seconds) as lengths:
        for suite in SUITES:
            command = [sys.executable, "-m", "pytest", *suite, *PATIENCE, *chosen]
            with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=file, stderr=file) as running:
                try:
                    ended = running.wait()
                finally:  # Ctrl-C: nothing of the round stays
                    for process in running_with(value):
                        send(process, signal.SIGKILL)
            status = status or (0 if ended == NO_TESTS else ended)
    return {
        "round": number,
        "status": status,
        "failed": FAILED.findall(output.read_text()),
        "minutes": round((monotonic() - begun) / 60, 1),
        "stalls": len(lengths),
        "stalled_seconds": round(sum(lengths)),
        "output": str(output),
    }


def main() -> int:
    """Run all rounds, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--stall-seconds", type=float, default=3.0, help="the longest stall")
    parser.add_argument("chosen", nargs="*", help="tests and options, in place of the whole suite")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    print(f"seed {told.seed}: the moments of stalls; what tests draw has its own seeds", flush=True)
    folder, rounds = Path(tempfile.mkdtemp(prefix="forebay-stress-")), list[dict[str, object]]()
    with busy_cores():
        for number in range(1, told.rounds + 1):
            rounds.append(run_round(number, told.seed, told.stall_seconds, told.chosen, folder))
            print(*(f"{name} {said}" for name, said in rounds[-1].items()), sep=" · ", flush=True)
    print(json.dumps({"seed": told.seed, "rounds": rounds}))
    return int(any(one["status"] for one in rounds))


if __name__ == "__main__":
    sys.exit(main())
