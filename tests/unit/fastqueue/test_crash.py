"""One history, with a crash at each of its steps: what was promised is there, in order, and it goes on."""

import pytest

from forebay.fastqueue.record import Damage
from forebay.fastqueue.settings import Durability, FormatName
from forebay.model import Full
from tests.disks import CrashError, SimulatedDisk
from tests.unit.fastqueue.queues import ALL, datas, drain, opened

SEEDS = range(8)


class History:
    """Pushes, reads and acknowledgements over several chunks; a crash may not take what is `promised`."""

    def __init__(self, durability: Durability, layout: FormatName) -> None:
        self._durability: Durability = durability
        self._layout: FormatName = layout
        self.pushed: list[bytes] = []
        self.promised: list[bytes] = []
        self.acked: set[bytes] = set()

    def run(self, disk: SimulatedDisk) -> None:
        for start in range(3):
            queue = opened(
                disk, durability=self._durability, format=self._layout, chunk_size=250, inmemory_blocks=4
            )
            for turn in range(3):
                blocks = [b"%d:%d:%d" % (start, turn, number) * 5 for number in range(5)]
                self.pushed += blocks
                queue.push(blocks)
                if self._durability == "always":
                    self.promised = list(self.pushed)
                records = queue.read(4, ALL)
                done = records[::2]
                self.acked.update(datas(done))
                queue.ack([record.sequence for record in done])
                queue.tick(float(turn))
                self.promised = list(self.pushed)
            queue.close()


def steps_of(durability: Durability, layout: FormatName) -> int:
    disk = SimulatedDisk()
    History(durability, layout).run(disk)
    return disk.steps


@pytest.mark.parametrize("layout", ["native", "governor"])
@pytest.mark.parametrize("durability", ["always", "interval"])
def test_a_crash_at_any_step_takes_nothing_that_was_promised(
    durability: Durability, layout: FormatName
) -> None:
    for step in range(1, steps_of(durability, layout) + 1):
        for seed in SEEDS:
            disk = SimulatedDisk(seed)
            disk.crash_at = step
            history = History(durability, layout)
            with pytest.raises(CrashError):
                history.run(disk)
            reports: list[Damage] = []
            queue = opened(disk.after_crash(), reports, durability=durability, format=layout, chunk_size=250)
            found = [block for block in drain(queue, 3) if block in history.pushed]
            missing = set(history.promised) - set(found) - history.acked
            assert not missing, (step, seed)
            places = [history.pushed.index(block) for block in found]
            assert places == sorted(set(places)), (step, seed)
            assert not [report for report in reports if report.kind in ("missing", "meta")], (step, seed)
            queue.push([b"goes on"])
            assert drain(queue) == [b"goes on"]


def test_a_chunk_that_could_not_be_begun_and_comes_back_takes_nothing() -> None:
    for seed in range(60):
        disk = SimulatedDisk(seed)
        queue = opened(disk, chunk_size=250, compression="none")
        queue.push([b"first" * 10])
        queue.push([b"second" * 5])
        disk.capacity -= disk.free_bytes() - 100  # enough for the head of a chunk, not for a record
        with pytest.raises(Full):
            queue.push([b"refused" * 10])
        disk.capacity = 1 << 20
        queue.push([b"small"])
        assert drain(opened(disk.after_crash(), chunk_size=250))[-1] == b"small", seed
