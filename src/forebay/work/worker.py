"""Worker: job processors for the queues of its bindings, from their start to their end.

`init` opens what is needed, `run` works until it is told to stop; `shutdown` tells it, `graceful_stop` tells
it and waits. A worker runs once.

Invariants: a queue without a binding isn't touched; stopping ends taking at once, lets handlers end within
`shutdown_seconds`, then cancels them; leases of handlers that have ended are given back before `run` returns,
and no attempt is counted for them. An instruction or a changed setting holds from the next batch on.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, cast

import msgspec
from prometheus_client import CollectorRegistry

from forebay.model import Clock, Misconfigured, Rejected, SystemClock, UnknownQueue, cancel
from forebay.store.seam import Store
from forebay.work.binding import Binding
from forebay.work.calls import Calls
from forebay.work.fairness import Fairness
from forebay.work.following import followed
from forebay.work.numbers import Numbers
from forebay.work.processor import JobProcessor
from forebay.work.served import Served
from forebay.work.settings import PROCESSORS_MAX, WorkerSettings
from forebay.work.taking import Taker
from forebay.work.threads import Threads
from forebay.work.values import WorkerReport

__all__ = ["Worker"]

logger: Final = logging.getLogger("forebay.work")
BINDINGS_MAX: Final = 100
"""As many queues can be waited for in one call."""
_AGAIN_SECONDS: Final = 1.0
_DEFAULT: Final = WorkerSettings()


class Worker:
    """See the module.

    `store` is an open one, which stays open, or an address, which is opened by `init` and closed when `run`
    ends; None leaves it to the command line. There are `processors` in all, else as many as the queues may
    have together. The numbers go to `registry`, else to one of the worker's own. `key` is for a server.
    """

    def __init__(
        self,
        store: Store | str | None,
        bindings: Sequence[Binding[Any]],
        *,
        name: str = "worker",
        processors: int | None = None,
        settings: WorkerSettings = _DEFAULT,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        key: str | None = None,
    ) -> None:
        _check(bindings, processors)
        self.name = name
        self.settings = settings
        self.registry = registry if registry is not None else CollectorRegistry()
        self.bindings = {binding.queue: binding for binding in bindings}
        self.store = store
        self.key = key
        self._clock = clock or SystemClock()
        self._processors = processors
        self._told_processors: int | None = None
        self._stack = AsyncExitStack()
        self._served: dict[str, Served] = {}
        self._calls: Calls | None = None
        self._running: dict[JobProcessor, asyncio.Task[None]] = {}
        self.told_to_stop = asyncio.Event()
        """Set when it is to stop, and stays set."""
        self._hurries = False
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_running = False
        self.is_stuck = False
        """Whether handlers were left that would not end."""

    # The life of a worker

    async def init(self) -> None:
        """Open the store, and see that every queue is there, as its binding wants it."""
        if self._calls is not None:
            return
        try:
            store = await self._open()
            numbers = Numbers.of(self.registry)
            for binding in self.bindings.values():
                number = await _queue_number(store, binding)
                self._served[binding.queue] = Served(binding, number, numbers.queue(binding.queue, number))
        except BaseException:
            self._served.clear()
            await self._stack.aclose()
            raise
        fairness = Fairness({queue: served.limit for queue, served in self._served.items()})
        self._calls = Calls(
            store,
            Taker(store, self._served, fairness, self.settings, self.name),
            settings=self.settings,
            name=self.name,
            clock=self._clock,
            threads=Threads(self.settings.threads, f"{self.name}-handler"),
        )

    async def run(self) -> None:
        """Work until the worker is told to stop; returns when everything is settled or given back."""
        await self.init()
        calls, numbers = self._begun(), Numbers.of(self.registry)
        numbers.workers += 1
        self._is_running = True
        logger.info("working", extra={"worker": self.name, "queues": ", ".join(self._served)})
        try:
            async with followed(self, calls.store):
                await self._supervise(calls)
                await self._finish(calls)
        except asyncio.CancelledError:
            await self._give_up(calls)
            raise
        finally:
            numbers.workers -= 1
            self.is_stuck = self.is_stuck or len(calls.stragglers) > 0
            await cancel(*self._running.values())  # usually there are none
            calls.threads.close()
            await self._stack.aclose()
            self._is_running = False
            self._ended.set()
        logger.info("stopped", extra={"worker": self.name})

    async def shutdown(self) -> None:
        """Tell the worker to stop: nothing more is taken, handlers finish."""
        self._tell()

    async def graceful_stop(self) -> None:
        """Stop, and return when all has ended. `shutdown_seconds` bound it."""
        self._tell()
        if self._is_running:
            await self._ended.wait()

    def stop(self) -> None:
        """Stop; asked again, hurry: handlers are cancelled, and what they had goes back."""
        self._hurries = self.told_to_stop.is_set()
        self._tell()

    def handle_signals(self) -> None:
        """Let SIGTERM and SIGINT stop the worker, and a second one hurry it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    @property
    def trouble(self) -> str | None:
        """Why the worker can't take tasks now; None if it can."""
        if self._calls is None:
            return "the worker hasn't begun"
        if self._calls.stopping.is_set():
            return "the worker stops"
        return self._calls.stragglers.trouble if self._calls.trouble is None else str(self._calls.trouble)

    # What it is told while it runs

    def instruct(self, processors: Mapping[str, int]) -> None:
        """Give each of these queues so many processors, up to its `max_processors`; others stay as they are.

        Rejected, and nothing is changed, if it has no such queue, or a number is none.
        """
        for queue, count in processors.items():
            if queue not in self.bindings:
                raise Rejected(
                    f"the worker has no queue {queue!r}", hint=f"it has {', '.join(self.bindings)}"
                )
            if type(count) is not int or not 0 <= count <= PROCESSORS_MAX:
                raise Rejected(f"{count!r} processors for {queue}", hint=f"give 0 to {PROCESSORS_MAX}")
        self._begun()
        for queue, count in processors.items():
            self._served[queue].instructed = count
        self._adapt()

    def configure(self, changes: Mapping[str, Mapping[str, Any]], *, processors: int | None = None) -> None:
        """Replace settings of queues; those that aren't named are again what their bindings say.

        `processors` is how many there are in all from now on; None: as many as the worker was made with.
        Rejected, and nothing is changed, if one of them can't be.
        """
        if processors is not None and not 0 <= processors <= PROCESSORS_MAX:
            raise Rejected(f"{processors} processors", hint=f"give 0 to {PROCESSORS_MAX}")
        found = {}
        for queue, served in self._served.items():
            found[queue] = msgspec.structs.replace(served.binding.settings, **changes.get(queue, {}))
        same = all(found[queue] == served.settings for queue, served in self._served.items())
        if same and processors == self._told_processors:
            return
        self._told_processors = processors
        for queue, settings in found.items():
            self._served[queue].settings = settings
        self._adapt()
        logger.info("settings have changed", extra={"worker": self.name})

    def numbers(self) -> dict[str, int]:
        """The numbers of its queues."""
        self._begun()
        return {queue: served.number for queue, served in self._served.items()}

    def report(self) -> WorkerReport:
        """What it has done, for a Manager."""
        fairness = self._begun().taker.fairness
        queues = {queue: served.report(fairness.turns_of(queue)) for queue, served in self._served.items()}
        return WorkerReport(
            worker=self.name, processors=len(self._running), queues=queues, group=self.settings.group
        )

    # How it does that

    def _begun(self) -> Calls:
        if self._calls is None:
            raise Rejected("the worker hasn't begun", hint="call init() or run() first")
        return self._calls

    async def _open(self) -> Store:
        if self.store is None:
            hint = "give Worker a store or an address, or name one with --store"
            raise Misconfigured(f"worker {self.name!r} has no store", hint=hint)
        if not isinstance(self.store, str):
            return self.store
        # What opens addresses is above this layer, so it is asked for at the front door of the package.
        store = cast(
            "Store", importlib.import_module("forebay").open(self.store, key=self.key, worker=self.name)
        )
        return await self._stack.enter_async_context(store)

    def _tell(self) -> None:
        self.told_to_stop.set()
        self._changed.set()

    def _adapt(self) -> None:
        """Go on with limits as they are now."""
        taker = self._begun().taker
        for queue, served in self._served.items():
            taker.fairness.limit(queue, served.limit)
        self._changed.set()
        taker.nudge()

    def _wanted(self) -> int:
        if self._told_processors is not None:
            return self._told_processors
        if self._processors is not None:
            return self._processors
        together = sum(served.settings.max_processors for served in self._served.values())
        return max(1, min(PROCESSORS_MAX, together))

    async def _supervise(self, calls: Calls) -> None:
        """Have as many processors as are wanted, until the worker is to stop."""
        while not self.told_to_stop.is_set():
            self._staff(calls, self._wanted())
            await self._changed.wait()
            self._changed.clear()
        calls.stopping.set()
        calls.taker.nudge()
        logger.info("stopping", extra={"worker": self.name})

    def _staff(self, calls: Calls, wanted: int) -> None:
        staying = [processor for processor in self._running if not processor.is_surplus]
        for processor in staying[wanted:]:
            processor.is_surplus = True
        for _ in range(wanted - len(staying)):
            self._hire(calls)
        if len(staying) > wanted:
            calls.taker.nudge()

    def _hire(self, calls: Calls) -> None:
        processor, numbers = JobProcessor(calls), Numbers.of(self.registry)
        task = asyncio.get_running_loop().create_task(processor.run(), name=f"{self.name}-processor")
        self._running[processor] = task
        numbers.processors += 1

        def gone(ended: asyncio.Task[None]) -> None:
            self._running.pop(processor, None)
            numbers.processors -= 1
            if ended.cancelled() or ended.exception() is None:
                self._changed.set()
                return
            logger.critical("a job processor has failed", exc_info=ended.exception())
            # Another takes its place, but not as fast as it can fail.
            ended.get_loop().call_later(_AGAIN_SECONDS, self._changed.set)

        task.add_done_callback(gone)

    async def _finish(self, calls: Calls) -> None:
        """Let handlers end; when their time is over, or a second signal comes, cancel them."""
        if await self._ends(self.settings.shutdown_seconds, hurries=True):
            return
        logger.warning("handlers are cancelled", extra={"worker": self.name})
        calls.cancel()
        if not await self._ends(self.settings.hurry_seconds, hurries=False):
            self.is_stuck = True
            text = "%d handlers don't end; their tasks come back when their leases end"
            logger.error(text, len(self._running))

    async def _give_up(self, calls: Calls) -> None:
        """Whoever ran the worker was cancelled: what is in hand goes back all the same."""
        self._tell()
        self._hurries = True
        calls.stopping.set()
        calls.taker.nudge()
        await self._finish(calls)

    async def _ends(self, seconds: float, *, hurries: bool) -> bool:
        """Wait for all processors; whether they have ended."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._running and not (hurries and self._hurries):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                break
        return not self._running


def _check(bindings: Sequence[object], processors: int | None) -> None:
    if not 1 <= len(bindings) <= BINDINGS_MAX:
        raise Misconfigured(f"a worker with {len(bindings)} bindings", hint=f"give 1 to {BINDINGS_MAX}")
    queues = []
    for binding in bindings:
        if not isinstance(binding, Binding):
            name = getattr(binding, "__name__", None) or repr(binding)
            hint = 'put @handler("queue") above it, or give a Binding'
            raise Misconfigured(f"{name} is bound to no queue", hint=hint)
        queues.append(binding.queue)
    twice = next((queue for queue in queues if queues.count(queue) > 1), None)
    if twice is not None:
        raise Misconfigured(f"queue {twice!r} has two handlers", hint="bind each queue once")
    if processors is not None and not 1 <= processors <= PROCESSORS_MAX:
        raise Misconfigured(f"{processors} processors", hint=f"give 1 to {PROCESSORS_MAX}")


async def _queue_number(store: Store, binding: Binding[Any]) -> int:
    """The number of a queue, which is made if it is missing; Misconfigured if it is another than wanted."""
    settings = binding.settings
    try:
        queue = await store.queue(binding.queue)
    except UnknownQueue:
        wanted = {
            "visibility_seconds": settings.visibility_seconds,
            "ordered": settings.ordered,
            "retries_max": settings.retries_max,
        }
        queue = await store.create_queue(binding.queue, wanted, number=binding.number)
    if binding.number is not None and queue.number != binding.number:
        text = f"queue {binding.queue!r} is number {queue.number} in the store, and {binding.number} here"
        raise Misconfigured(text, hint="correct the contract, or use another queue")
    if settings.ordered and not queue.settings.ordered:
        text = f"queue {binding.queue!r} is to be ordered, and the one in the store isn't"
        raise Misconfigured(text, hint="that is fixed when a queue is made: use another queue")
    given, most = queue.settings.retries_max, settings.retries_max
    if given is not None and most is not None and given < most:
        text = "tasks of %s come back %d times, as the queue says, not %d: `forebay queues set` changes it"
        logger.warning(text, binding.queue, given, most)
    return queue.number
