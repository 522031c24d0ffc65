"""`forebay top`: the queues, live in the terminal.

Invariants: the store is asked twice a second at most, and for what is older less often; the terminal is left
as it was found, however it ends; a store that goes away is said so, and asked again.
"""

import argparse
import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.app.commands.arguments import duration
from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import age_text, console, print_json, time_text
from forebay.app.commands.pace import CELLS, Pace, QueuePace, oldest_by_queue, sparkline
from forebay.app.commands.relay_status import RelayRow, RelayWatch, access_of, declare_access
from forebay.model import Rejected, Unavailable, UnknownQueue, cancel
from forebay.store.seam import Store

__all__ = ["declare_top", "screen", "table", "top"]

INTERVAL_SECONDS_MIN: Final = 0.5
OLDEST_SECONDS: Final = 2.0
"""How often it is asked since when messages wait: that costs by blocks."""
OLDEST_QUEUES: Final = 100
"""Of how many queues it is asked: those that fit on a large screen."""
PATIENCE_SECONDS: Final = 5.0
"""How long an old screen may pass for a new one."""
FRAME_LINES: Final = 6
"""Lines of the screen that are no queues."""


def declare_top(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay top`."""
    declare_store(parser)
    parser.add_argument(
        "--interval", metavar="TIME", type=duration, default=1.0,
        help="how often to look, in seconds or as 500ms (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--relay", metavar="URL", action="append", default=[], help="show this relay, too; may be repeated"
    )
    declare_access(parser, "--relay-")
    parser.add_argument("--once", action="store_true", help="look twice, an interval apart, print, and end")


@on_store
async def top(store: Store, arguments: argparse.Namespace) -> int:
    """Show queues until `q`, or once."""
    if arguments.interval < INTERVAL_SECONDS_MIN:
        raise Rejected(f"--interval is {arguments.interval}s", hint=f"give {INTERVAL_SECONDS_MIN}s or more")
    watch = _Watch(store, arguments.interval, RelayWatch(arguments.relay, access_of(arguments)))
    if arguments.json or arguments.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        await watch.look()
        await asyncio.sleep(arguments.interval)
        await watch.look()
        if arguments.json:
            relays = {"relays": watch.relays.rows} if arguments.relay else {}
            print_json({"at": watch.at, "queues": watch.rows, **relays})
        else:
            console().print(table(watch.rows))
            for row in watch.relays.rows:
                console().print(row.line(), highlight=False)
    else:
        await _show(watch)
    return 0


class _Watch:
    """What is known of the store, and what went wrong on the last look."""

    def __init__(self, store: Store, interval: float, relays: RelayWatch | None = None) -> None:
        self._store = store
        self._pace = Pace()
        self._oldest: dict[str, int] = {}
        self._oldest_in = 0.0
        self.interval = interval
        self.at: int | None = None
        self.rows: list[QueuePace] = []
        self.relays = relays or RelayWatch([])

    async def look(self) -> None:
        """Ask the store."""
        stats = await self._store.ledger()
        self.at, self.rows = stats.at, self._pace.add(stats, self._oldest)
        if self._oldest_in <= 0:
            self._oldest = await self._find_oldest()
            self._oldest_in = OLDEST_SECONDS
            self.rows = [self._pace.aged(row, stats.at, self._oldest) for row in self.rows]
        self._oldest_in -= self.interval
        await self.relays.look()

    async def _find_oldest(self) -> dict[str, int]:
        """Since when messages wait: of few queues that have any, as it costs by blocks."""
        waiting = [row.queue for row in busiest(self.rows) if row.ready][:OLDEST_QUEUES]
        found: dict[str, int] = {}
        for queue in waiting:
            with suppress(UnknownQueue):  # it is deleted, or still in the spool
                found |= oldest_by_queue(await self._store.flow_stats(queue=queue))
        return found


async def _show(watch: _Watch) -> None:
    terminal = Console()
    quitting = asyncio.Event()
    await watch.look()  # what is wrong with the address is said before the screen is taken
    with _keys(quitting), Live(console=terminal, screen=True, auto_refresh=False) as live:
        trouble = ""
        while not quitting.is_set():
            relays = watch.relays.rows
            shown = screen(watch.rows, watch.at, trouble, terminal.height, relays)
            live.update(shown, refresh=True)
            try:
                async with asyncio.timeout(watch.interval):
                    await quitting.wait()
            except TimeoutError:
                trouble = await _look_unless(watch, quitting)


async def _look_unless(watch: _Watch, quitting: asyncio.Event) -> str:
    """Look, and give it up when somebody quits: a client tries for long to reach a server that is gone."""
    looking, leaving = asyncio.create_task(_look(watch)), asyncio.create_task(quitting.wait())
    try:
        await asyncio.wait([looking, leaving], return_when=asyncio.FIRST_COMPLETED)
        return looking.result() if looking.done() else ""
    finally:
        await cancel(looking, leaving)


async def _look(watch: _Watch) -> str:
    """Ask the store; what is wrong, if something is."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await watch.look()
    except Unavailable as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {PATIENCE_SECONDS:g} seconds; it is asked again"
    return ""


@contextmanager
def _keys(quitting: asyncio.Event) -> Iterator[None]:
    """Hear single keys while it lasts: q quits."""
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        if os.read(descriptor, 1) in (b"q", b"Q", b""):
            quitting.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def screen(
    rows: Sequence[QueuePace], at: int | None, trouble: str, height: int, relays: Sequence[RelayRow] = ()
) -> RenderableType:
    """All of the screen: as many queues as fit, the busiest of them, and a line for each relay."""
    room = max(1, height - FRAME_LINES - len(relays))
    shown = {row.queue for row in busiest(rows)[:room]}
    hidden = len(rows) - len(shown)
    head = Text(f"forebay top  {time_text(at)}  {len(rows):,} queues", style="bold")
    foot = Text(f"{hidden:,} more queues; q quits" if hidden else "q quits", style="dim")
    if trouble:
        foot = Text(trouble, style="bold red", overflow="ellipsis", no_wrap=True)
    lines = [Text(row.line(), overflow="ellipsis", no_wrap=True) for row in relays]
    return Group(head, table([row for row in rows if row.queue in shown]), *lines, foot)


def busiest(rows: Sequence[QueuePace]) -> list[QueuePace]:
    """Queues by how much goes in and out, then by how much waits."""
    return sorted(rows, key=lambda row: (row.in_per_second + row.out_per_second, row.ready), reverse=True)


def table(rows: Sequence[QueuePace]) -> Table:
    """Queues, one a row."""
    found = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), expand=False)
    found.add_column("queue", overflow="ellipsis", no_wrap=True, max_width=30)
    places = [*(["spooled"] if any(row.spooled for row in rows) else []), "ready", "leased", "delayed"]
    for name in ("in/s", "out/s", *places, "dead", "oldest"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("last minute", no_wrap=True, min_width=CELLS)
    for row in rows:
        title = Text(row.queue + (" (paused)" if row.paused else ""))
        rates = [_rate(row.in_per_second), _rate(row.out_per_second)]
        numbers = [f"{getattr(row, place):,}" for place in places]
        dead = Text(f"{row.dead:,}", style="red" if row.dead else "")
        oldest = age_text(row.oldest_seconds)
        found.add_row(title, *rates, *numbers, dead, oldest, sparkline(row.last_minute).rjust(CELLS))
    return found


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"  # noqa: PLR2004 - two digits
