"""Random pushes, reads and acknowledgements, and a crash at any write: nothing acknowledged is lost."""

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.fastqueue.record import Damage
from forebay.fastqueue.settings import Durability, FormatName
from forebay.model import Unavailable
from tests.disks import CrashError, SimulatedDisk
from tests.unit.fastqueue.queues import ALL, opened

ROOMY = 1 << 20


class FastQueueMachine(RuleBasedStateMachine):
    """A process that pushes and reads, on a machine that dies now and then."""

    durability: ClassVar[Durability] = "always"
    format: ClassVar[FormatName] = "native"

    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed, ROOMY)
        self.pushed = 0
        self.contents: set[bytes] = set()
        self.taken: list[int] = []
        """Pushes that returned, in order."""
        self.safe = 0
        """How many of them are promised to survive a crash."""
        self.doubtful: set[int] = set()
        """Pushes that raised: they may or may not be there."""
        self.seen: set[int] = set()
        self.acked: set[int] = set()
        self.numbers: dict[int, int] = {}
        """A block as it is handed out, with its sequence number."""
        self.last = -1
        self.now = 0.0
        self.disturbed = False
        self.reports: list[Damage] = []
        self.begin()

    def begin(self) -> None:
        self.queue = opened(
            self.disk, self.reports, durability=self.durability, format=self.format,
            inmemory_blocks=6, write_buffer_size=100,
        )  # fmt: skip

    def restart(self) -> None:
        self.taken, lost = self.taken[: self.safe], self.taken[self.safe :]
        self.doubtful.update(lost)
        self.safe = len(self.taken)
        self.numbers.clear()
        self.last = -1
        while True:
            self.disk = self.disk.after_crash()
            if self.disk.chance.random() < 0.5:
                self.disk.crash_at = self.disk.chance.randint(1, 10)
            try:
                self.begin()
            except CrashError:
                continue
            self.disk.crash_at = None
            return

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=9))
    def push(self, sizes: list[int]) -> None:
        blocks = list(range(self.pushed, self.pushed + len(sizes)))
        self.pushed += len(sizes)
        content = [b"%06d" % block + b"x" * size for block, size in zip(blocks, sizes, strict=True)]
        self.contents.update(content)
        try:
            numbers = self.queue.push(content)
        except CrashError:
            self.doubtful.update(blocks)
            self.restart()
        except Unavailable:
            assert self.disturbed
            self.doubtful.update(blocks)
        else:
            assert len(numbers) == len(blocks)
            self.taken += blocks
            if self.durability == "always":
                self.safe = len(self.taken)

    @rule(count=st.integers(1, 12), bytes_max=st.sampled_from([1, 100, ALL]))
    def read(self, count: int, bytes_max: int) -> None:
        try:
            records = self.queue.read(count, bytes_max)
        except CrashError:
            self.restart()
            return
        assert len(records) <= count
        assert len(records) <= 1 or sum(len(record.data) for record in records) <= bytes_max
        for record in records:
            if record.data not in self.contents:
                # Without a checksum the hole that a crash left in a block looks like a part of it.
                assert self.format == "governor", "a block isn't what was pushed"
                self.queue.ack([record.sequence])
                continue
            block = int(record.data[:6])
            assert block in self.doubtful or block in self.taken, "a block was invented"
            assert block > self.last, "a block overtook another, or came twice"
            self.last = block
            self.seen.add(block)
            self.numbers[record.sequence] = block

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.numbers)), unique=True, max_size=6))
        self.queue.ack(numbers)
        self.acked.update(self.numbers.pop(number) for number in numbers)

    @precondition(lambda self: self.numbers)
    @rule()
    def unread(self) -> None:
        """Have everything that is handed out come again."""
        self.queue.unread(min(self.numbers))
        self.last = self.numbers[min(self.numbers)] - 1
        self.numbers.clear()

    @rule(seconds=st.sampled_from([0.5, 1.0, 31.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        try:
            self.queue.tick(self.now)
        except CrashError:
            self.restart()
        except Unavailable:
            assert self.disturbed
        else:
            if self.durability == "interval" and seconds >= 1.0 and not self.disturbed:
                self.safe = len(self.taken)

    @rule()
    def close_and_open(self) -> None:
        try:
            self.queue.close()
        except CrashError:
            self.restart()
            return
        except Unavailable:
            assert self.disturbed
            self.restart()
            return
        if self.disturbed and self.format == "governor":
            # The format can't say that a sync of the last chunk had failed: only a restart of the machine
            # makes it sure that the file holds what can be read of it.
            self.restart()
            return
        self.safe = len(self.taken) if not self.disturbed or self.durability == "always" else self.safe
        self.numbers.clear()
        self.last = -1
        try:
            self.begin()
        except CrashError:
            self.restart()

    @precondition(lambda self: self.disk.crash_at is None)
    @rule(steps=st.integers(1, 12))
    def crash_soon(self, steps: int) -> None:
        self.disk.crash_at = self.disk.steps + steps

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(count=st.integers(1, 3))
    def fail_syncs(self, count: int) -> None:
        self.disk.failing_syncs = count
        self.disturbed = True

    @rule(room=st.integers(0, 400))
    def fill(self, room: int) -> None:
        self.disk.capacity -= max(0, self.disk.free_bytes() - room)
        self.disturbed = True

    @rule()
    def free(self) -> None:
        self.disk.capacity, self.disk.failing_syncs = ROOMY, 0

    @invariant()
    def holds_what_is_not_acknowledged(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.entry_count >= 0
            assert (self.queue.total_bytes > 0) == (self.queue.entry_count > 0)

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        self.disk.capacity, self.disk.failing_syncs, self.disk.crash_at = ROOMY, 0, None
        if self.numbers:
            self.queue.unread(min(self.numbers))
            self.last = self.numbers[min(self.numbers)] - 1
        self.disturbed = True
        while self.queue.entry_count:
            before = self.queue.cursor
            self.read(7, ALL)
            self.queue.ack(list(self.numbers))
            self.numbers.clear()
            assert self.queue.cursor > before, "the count says there is more"
        assert not self.queue.read(1, ALL), "the count says there is nothing"
        assert set(self.taken[: self.safe]) <= self.seen, "something promised was lost"
        self.queue.push([b"999999"])
        assert [record.data for record in self.queue.read(2, ALL)] == [b"999999"]


class IntervalMachine(FastQueueMachine):
    """Likewise, with a sync now and then."""

    durability = "interval"


class MemoryMachine(FastQueueMachine):
    """Likewise, with no promise but that of order."""

    durability = "memory"


class GovernorMachine(FastQueueMachine):
    """Likewise, in the format of metrics-governor."""

    format = "governor"


class GovernorIntervalMachine(GovernorMachine):
    """Likewise, with a sync now and then."""

    durability = "interval"


TestAlways = FastQueueMachine.TestCase
TestAlways.settings = settings(stateful_step_count=40)
TestInterval = IntervalMachine.TestCase
TestInterval.settings = settings(stateful_step_count=40)
TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(stateful_step_count=40)
TestGovernor = GovernorMachine.TestCase
TestGovernor.settings = settings(stateful_step_count=40)
TestGovernorInterval = GovernorIntervalMachine.TestCase
TestGovernorInterval.settings = settings(stateful_step_count=40)
