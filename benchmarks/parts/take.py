"""Take and done at batch 100, 16 workers, on SQLite: through this process's memory and through Valkey."""

from benchmarks.bench import Bench
from benchmarks.drive import interleave, turns_of, typical
from benchmarks.payloads import batches
from benchmarks.verdict import Figures
from benchmarks.workload import fill, opened, take_rate


async def run(bench: Bench) -> Figures:
    """Measure, in rounds."""
    pushes, pace = batches(), bench.pace
    messages = pace.store_messages

    with bench.folder() as one, bench.folder() as other:
        async with opened(one) as memory, opened(other, bench.valkey.url) as valkey:

            async def by_memory(_: float) -> float:
                await fill(memory, pushes, messages)
                return await take_rate(memory, messages)

            async def by_valkey(_: float) -> float:
                await fill(valkey, pushes, messages // 4)
                return await take_rate(valkey, messages // 4)

            contestants = {"memory": by_memory, "valkey": by_valkey}
            with bench.part("take", turns_of(len(contestants), pace.rounds)):
                rates = await interleave(contestants, pace.rounds, pace.seconds, bench.note)
    return {f"{name}_per_second": typical(rates[name]) for name in rates}
