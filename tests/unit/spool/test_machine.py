"""Crashes at every write, sync and rename: what was acknowledged is read back, whole, in order."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from forebay.model import Block, Message, Unavailable, mint
from forebay.spool.appending import Appender, Write
from forebay.spool.lines import Spooled, SpooledBlock, SpooledSettlement
from forebay.spool.reader import Reader
from forebay.spool.recovering import recover
from forebay.spool.scanning import Place
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import last_id
from tests.disks import CrashError, SimulatedDisk

SETTINGS = SpoolSettings(events_per_file=12, reserve_bytes=2_000)
ROOMY = 1 << 20

payloads = st.sampled_from([b"{}", b'{"id": 1}', b"\x00\xff", b"x" * 50])
sizes = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def id_of(entry: Spooled) -> bytes:
    return entry.block.id if isinstance(entry, SpooledBlock) else entry.id


class SpoolMachine(RuleBasedStateMachine):
    """A process that writes and replays, on a machine that dies now and then."""

    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed, ROOMY)
        self.attempted: dict[bytes, Spooled] = {}
        self.acknowledged: set[bytes] = set()
        self.replayed: Counter[bytes] = Counter()
        self.disturbed = False
        self.begin()

    def begin(self) -> None:
        recovered = recover(self.disk, may_leave=True)
        self.appender = Appender(self.disk, SETTINGS, last=last_id(self.disk))
        self.reader = Reader(self.disk, left=[file.name for file in recovered if file.left])

    def restart(self) -> None:
        self.disturbed = True
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

    @rule(sizes=sizes, payload=payloads)
    def write(self, sizes: list[int], payload: bytes) -> None:
        entries: list[Spooled] = []
        for size in sizes:
            messages = [Message(payload, f"p{i % 2}", f"t{i}") for i in range(size)]
            block = SpooledBlock("orders", Block.of(messages)) if messages else None
            entries.append(block or SpooledSettlement(mint(), payload))
        self.attempted |= {id_of(entry): entry for entry in entries}
        try:
            results = self.appender.write([Write.of([entry]) for entry in entries])
        except CrashError:
            self.restart()
            return
        safe = [id_of(entry) for entry, result in zip(entries, results, strict=True) if result is None]
        self.acknowledged.update(safe)

    @rule()
    def finish(self) -> None:
        try:
            self.appender.finish()
        except CrashError:
            self.restart()

    @rule(events_max=st.integers(1, 10))
    def replay_a_file(self, events_max: int) -> None:
        try:
            self.replay(events_max)
        except CrashError:
            self.restart()
        except Unavailable:
            assert self.disturbed, "only what is torn needs space to be read"

    def replay(self, events_max: int) -> bool:
        """Replay the oldest file; say whether there was one."""
        for name in self.reader.files():
            place: Place | None = Place()
            while place is not None:
                page = self.reader.read(name, place, events_max=events_max)
                for found in page.found:
                    assert found.entry == self.attempted[id_of(found.entry)]
                    self.replayed[id_of(found.entry)] += 1
                assert self.disturbed or not page.faults
                place = page.next
            self.reader.done(name)
            return True
        return False

    @precondition(lambda self: self.disk.crash_at is None)
    @rule(steps=st.integers(1, 12))
    def crash_soon(self, steps: int) -> None:
        self.disk.crash_at = self.disk.steps + steps

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(count=st.integers(1, 2))
    def fail_a_sync(self, count: int) -> None:
        self.disk.failing_syncs = count
        self.disturbed = True

    @rule(room=st.integers(0, 1_500))
    def fill(self, room: int) -> None:
        self.disk.capacity -= max(0, self.disk.free_bytes() - room)

    @rule()
    def free(self) -> None:
        self.disk.capacity = ROOMY

    def teardown(self) -> None:
        if not hasattr(self, "disk"):
            return
        self.disk.capacity, self.disk.failing_syncs, self.disk.crash_at = ROOMY, 0, None
        self.appender.finish()
        while self.replay(5):
            pass
        assert self.acknowledged <= set(self.replayed), "something acknowledged was lost"
        order = list(self.attempted)
        places = [order.index(id) for id in self.replayed]
        assert places == sorted(places), "something overtook something else"
        if not self.disturbed:
            assert set(self.replayed.values()) <= {1}


TestSpool = SpoolMachine.TestCase
TestSpool.settings = settings(stateful_step_count=30)
