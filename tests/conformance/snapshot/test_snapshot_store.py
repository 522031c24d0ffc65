"""Every place of snapshots: documents are read whole, writers take turns, and nothing goes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from forebay.model import Corrupt, Rejected, Unavailable
from forebay.observe.snapshot_store import SnapshotStore, Term, TermOver
from tests.conformance.snapshot.rigs import FileRig, SnapshotRig, meta, valkey_rig
from tests.servers import ValkeyServer

T = TypeVar("T")

SECONDS = 10.0


@pytest.fixture(params=["file", "valkey"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SnapshotRig]:
    if request.param == "file":
        yield FileRig(tmp_path / "snapshots")
    else:
        async with valkey_rig(request.getfixturevalue("valkey_url"), "test:snapshot") as rig:
            yield rig


async def begun(store: SnapshotStore, owner: str = "one") -> Term:
    term = await store.begin_term(owner, SECONDS)
    assert term is not None
    return term


async def test_before_the_first_there_is_none(rig: SnapshotRig) -> None:
    store = rig.open()
    assert await store.current() is None
    assert await store.versions() == []


async def test_what_is_published_is_read_with_its_metadata(rig: SnapshotRig) -> None:
    store = rig.open()
    term = await begun(store)
    data = bytes(range(256)) * 1_000
    version = await store.publish(term, data, meta(term, data))
    found = await rig.open().current()
    assert found is not None
    assert (found.version, found.data, found.meta) == (version, data, meta(term, data))
    assert (found.meta.owner, found.meta.fence, found.meta.aggregation_duration_ms) == (
        "one",
        term.number,
        20,
    )
    assert await store.current(after=version) is None
    later = await store.publish(term, b"", meta(term, b"", 2.5))
    assert await store.current(after=version) is not None
    assert later > version
    found = await rig.open().current()
    assert found is not None
    assert (found.version, found.data) == (later, b"")


async def test_the_last_versions_are_kept(rig: SnapshotRig) -> None:
    store = rig.open(keep_versions=2)
    term = await begun(store)
    published = [await store.publish(term, b"%d" % n, meta(term, b"%d" % n)) for n in range(5)]
    assert published == sorted(set(published))
    assert await store.versions() == published[-2:]


@pytest.mark.parametrize("keep", [0, -1, 1_001, True])
def test_a_number_of_versions_that_can_not_be_is_refused(keep: int, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="keep 1 to 1,000"):
        FileRig(tmp_path).open(keep_versions=keep)


async def test_one_writer_has_a_term_at_a_time(rig: SnapshotRig) -> None:
    one, other = rig.open(), rig.open()
    first = await begun(one)
    assert await other.begin_term("other", SECONDS) is None
    assert await begun(one) == first, "one's own goes on"
    assert await one.renew_term(first, SECONDS)
    await one.end_term(first)
    second = await begun(other, "other")
    assert second.number > first.number
    assert not await one.renew_term(first, SECONDS)
    await one.end_term(first)
    assert await one.begin_term("one", SECONDS) is None, "the other's term was left alone"


async def test_a_writer_that_was_paused_for_too_long_publishes_nothing(rig: SnapshotRig) -> None:
    paused, other = rig.open(), rig.open()
    old = await begun(paused)
    await paused.publish(old, b"a", meta(old, b"a"))
    await rig.run_out()
    new = await begun(other, "other")
    version = await other.publish(new, b"b", meta(new, b"b"))
    with pytest.raises(TermOver, match="of one is over"):
        await paused.publish(old, b"c", meta(old, b"c"))
    assert not await paused.renew_term(old, SECONDS)
    await other.end_term(new)
    with pytest.raises(TermOver):
        await paused.publish(old, b"c", meta(old, b"c"))
    found = await paused.current()
    assert found is not None
    assert (found.version, found.data) == (version, b"b")


async def test_a_term_that_ran_out_and_that_nobody_took_over_still_counts(rig: SnapshotRig) -> None:
    store = rig.open()
    term = await begun(store)
    await rig.run_out()
    assert await store.publish(term, b"a", meta(term, b"a"))
    assert (await begun(store)).number > term.number


async def test_a_document_that_is_not_whole_is_corrupt_until_the_next(rig: SnapshotRig) -> None:
    store = rig.open()
    term = await begun(store)
    await store.publish(term, b"abc", meta(term, b"abc"))
    await rig.tear()
    with pytest.raises(Corrupt, match="has 2 bytes of 3"):
        await store.current()
    await store.publish(term, b"abcd", meta(term, b"abcd"))
    found = await store.current()
    assert found is not None
    assert found.data == b"abcd"


async def test_a_failure_is_noted_beside_the_current_one_by_whoever_has_the_term(rig: SnapshotRig) -> None:
    store, other = rig.open(), rig.open()
    term = await begun(store)
    assert not await store.note_failure(term, "there is none yet")
    version = await store.publish(term, b"abc", meta(term, b"abc"))
    assert await store.note_failure(term, "the log is away" + "." * 600)
    found = await other.current()
    assert found is not None
    assert (found.version, found.data, found.meta.status) == (version, b"abc", "error")
    assert found.meta.error_message == ("the log is away" + "." * 600)[:500]
    published = meta(term, b"abc")
    assert found.meta == msgspec.structs.replace(
        published, status="error", error_message=found.meta.error_message
    )
    await rig.run_out()
    new = await begun(other, "other")
    assert not await store.note_failure(term, "from a term that is over")
    assert await other.note_failure(new, "still away")
    found = await store.current()
    assert found is not None
    assert found.meta.error_message == "still away"
    await other.publish(new, b"d", meta(new, b"d"))
    found = await store.current()
    assert found is not None
    assert (found.meta.status, found.meta.error_message) == ("ok", None)
    await rig.flush()
    assert not await other.note_failure(new, "everything was removed")
    assert await store.current() is None


async def test_after_everything_was_removed_terms_begin_anew(rig: SnapshotRig) -> None:
    store, other = rig.open(), rig.open()
    term = await begun(store)
    await store.publish(term, b"a", meta(term, b"a"))
    await rig.flush()
    assert await store.current() is None
    assert not await store.renew_term(term, SECONDS)
    with pytest.raises(TermOver):
        await store.publish(term, b"b", meta(term, b"b"))
    new = await begun(other, "other")
    await other.publish(new, b"c", meta(new, b"c"))
    await other.end_term(new)
    with pytest.raises(TermOver):
        await store.publish(term, b"b", meta(term, b"b"))


STEPS = ("begin", "publish", "publish", "renew", "end", "fail", "run out")


class Schedule:
    """Two writers are paused, take over, renew, fail and end, in any order, and somebody reads meanwhile.

    A server of their own is flushed, and killed while they go on: what can't be reached is tried again.
    """

    def __init__(self, rig: SnapshotRig, chance: random.Random, server: ValkeyServer | None = None) -> None:
        self._rig = rig
        self._chance = chance
        self._server = server
        self._steps = STEPS if server is None else (*STEPS, *STEPS, "flush", "kill")
        self.away = 0
        """How often the server could not be reached."""
        self._stores = [rig.open(keep_versions=2) for _ in range(2)]
        self._terms: list[Term | None] = [None, None]
        self._valid: Term | None = None
        self._latest = 0
        self._is_over = False

    async def run(self) -> None:
        reading = asyncio.create_task(self._read())
        try:
            for _ in range(12):
                await self._step(self._chance.randrange(2))
        finally:
            self._is_over = True
            await reading

    async def _read(self) -> None:
        seen = 0
        while not self._is_over:
            found = await self._patiently(self._stores[0].current)
            if found is not None:
                assert found.version >= seen, "what is current became an older one"
                assert found.data == document(found.meta.fence)
                seen = found.version
            await asyncio.sleep(0)

    async def _step(self, who: int) -> None:
        what = self._chance.choice(self._steps)
        if what == "kill":
            assert self._server is not None
            restarting = asyncio.create_task(asyncio.to_thread(self._restart, self._server))
            await self._do(who, self._chance.choice(STEPS[:-1]))
            await restarting
        elif what == "flush":
            await self._patiently(self._rig.flush)
            self._valid = None
        elif what == "run out":
            await self._rig.run_out()
        else:
            await self._do(who, what)

    @staticmethod
    def _restart(server: ValkeyServer) -> None:
        server.kill()
        server.start()

    async def _patiently(self, verb: Callable[[], Awaitable[T]]) -> T:
        """What a verb answers, as soon as the server is there."""
        while True:
            try:
                return await verb()
            except Unavailable:
                assert self._server is not None, "it was there all the time"
                self.away += 1
                await asyncio.sleep(0)

    async def _do(self, who: int, what: str) -> None:
        store, term = self._stores[who], self._terms[who]
        if what == "begin":
            if begun := await self._patiently(lambda: store.begin_term(f"w{who}", SECONDS)):
                self._terms[who] = self._valid = begun
        elif term is not None and what == "renew":
            assert await self._patiently(lambda: store.renew_term(term, SECONDS)) is (term == self._valid)
        elif term is not None and what == "fail":
            noted = await self._patiently(lambda: store.note_failure(term, "no"))
            assert not noted or term == self._valid, "a term that is over said something"
        elif term is not None and what == "end":
            await self._patiently(lambda: store.end_term(term))
            self._valid = None if term == self._valid else self._valid
        elif term is not None:
            await self._publish(store, term)

    async def _publish(self, store: SnapshotStore, term: Term) -> None:
        data = document(term.number)
        try:
            version = await self._patiently(lambda: store.publish(term, data, meta(term, data)))
        except TermOver:
            assert term != self._valid
        else:
            assert term == self._valid, "a term published that another had taken over"
            assert version > self._latest
            self._latest = version


def document(number: int) -> bytes:
    """The document of a term."""
    return b"%d" % number * 1_000


@pytest.mark.parametrize("seed", range(20))
async def test_in_any_order_of_things_what_is_current_only_grows(rig: SnapshotRig, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        if await rig.open().versions():
            await rig.flush()
        await Schedule(rig, chance).run()


async def test_a_server_that_is_flushed_and_killed_serves_no_older_document(
    valkey: ValkeyServer, rng: random.Random
) -> None:
    away = 0
    async with valkey_rig(valkey.url, "test:snapshot") as rig:
        for _ in range(30):
            await rig.flush()
            schedule = Schedule(rig, rng, valkey)
            await schedule.run()
            away += schedule.away
    assert away, "nobody noticed that it was killed"
