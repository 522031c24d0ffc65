"""Whether 5 million cold messages change anything: the same figures, beside a store with few."""

from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks.bench import Bench
from benchmarks.drive import interleave, ratios, turns_of
from benchmarks.payloads import batches
from benchmarks.verdict import Figures
from benchmarks.workload import fill, opened, percentile, take_rate, waits
from forebay.store.store import LogStore


async def run(bench: Bench) -> Figures:
    """Measure, in rounds; each store is brought back to its number of messages before its turn."""
    figures: dict[str, float | list[float]] = {}
    for name, url in (("memory", None), ("valkey", bench.valkey.url)):
        figures |= await _compare(bench, name, url)
    return {"messages": float(bench.pace.cold_messages[1]), **figures}


async def _compare(bench: Bench, name: str, url: str | None) -> dict[str, float | list[float]]:
    pushes, pace = batches(), bench.pace
    part = pace.store_messages // (1 if url is None else 4)

    def turn(store: LogStore, messages: int) -> Callable[[float], Awaitable[float]]:
        async def run_turn(_: float) -> float:
            await fill(store, pushes, messages)
            return await take_rate(store, part)

        return run_turn

    few, many = pace.cold_messages
    with bench.folder() as one, bench.folder() as other:
        async with opened(one, url) as small, opened(other, url) as large:
            contestants = {"few": turn(small, max(few, part)), "many": turn(large, many)}
            with bench.part(f"cold, {name}", turns_of(2, pace.rounds) + 1):
                with bench.note(f"{many:,} messages"):
                    await fill(large, pushes, many)
                rates = await interleave(contestants, pace.rounds, pace.seconds, bench.note)
            by_round = ratios(rates, "many", "few")
            figures: dict[str, float | list[float]] = {
                f"{name}_ratio": median(by_round),
                f"{name}_ratio_by_round": by_round,
            }
            if url is None:
                figures |= await _waits(bench, small, large)
    return figures


async def _waits(bench: Bench, small: LogStore, large: LogStore) -> dict[str, float | list[float]]:
    """The wait for a task of another queue, in turns, which the cold messages must not prolong."""
    payload = batches(1)[0].payloads[0]
    found: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(10):
        for name, store in (("few", small), ("many", large)):
            found[name] += await waits(store, payload, bench.pace.store_waits // 10)
    p99 = {name: percentile(sorted(values), 0.99) for name, values in found.items()}
    return {
        "put_to_take_ms_p99_few": p99["few"],
        "put_to_take_ms_p99_many": p99["many"],
        "put_to_take_ms_p99_ratio": round(p99["many"] / p99["few"], 3),
    }
