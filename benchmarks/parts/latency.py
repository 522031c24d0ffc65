"""How long a task takes from put to take on an idle embedded store, when a worker waits for it."""

from benchmarks.bench import Bench
from benchmarks.payloads import batches
from benchmarks.verdict import Figures
from benchmarks.workload import opened, percentile, waits


async def run(bench: Bench) -> Figures:
    """Measure."""
    payload = batches(1)[0].payloads[0]
    with bench.part("latency", 1), bench.folder() as folder, bench.note("put to take"):
        async with opened(folder) as store:
            await waits(store, payload, 20)
            found = await waits(store, payload, bench.pace.store_waits)
    return {f"put_to_take_ms_p{part}": percentile(found, part / 100) for part in (50, 90, 99)}
