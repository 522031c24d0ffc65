"""A process that has a server imported, and forks one when it is told to: many short lives, cheaply.

Run as `python -m tests.chaos.server_nursery`. It reads an `Order` a line, and answers each with two lines:
the id of the process it has forked, and its status once that has ended. A server may be told where to die: it
kills itself with -9 in the middle of what it does, where a kill from outside would seldom meet it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, Literal, cast

import msgspec

from forebay import disk
from forebay.app.cli import main
from forebay.failover.sinks import LogSink
from forebay.log import postgres

_PR_SET_PDEATHSIG: Final = 1
_KEPT: Final = (postgres,)
"""What a server imports when it needs it; here it is needed."""

When = Literal["before", "amid", "after"]
What = Literal["append", "sync", "rename", "remove", "replay"]


class Death(msgspec.Struct, frozen=True):
    """Where a server dies: at which call of what, and when in it."""

    what: What
    call: int
    """The first is 1."""
    when: When


class Order(msgspec.Struct, frozen=True):
    """A server to start."""

    arguments: list[str]
    log: str
    """The file to which all that it says is appended."""
    death: Death | None = None


_FILE: Final = cast("Any", disk)._RealFile
_PLACES: Final[dict[str, tuple[Any, str]]] = {
    "append": (_FILE, "append"),
    "sync": (_FILE, "sync"),
    "rename": (disk.RealDisk, "rename"),
    "remove": (disk.RealDisk, "remove"),
    "replay": (LogSink, "write"),
}


def die() -> None:
    """Be killed, now."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(death: Death) -> None:
    """Make it die there."""
    owner, name = _PLACES[death.what]
    real, calls = getattr(owner, name), 0

    def is_due() -> bool:
        nonlocal calls
        calls += 1
        return calls == death.call

    setattr(owner, name, (_dying_later if death.what == "replay" else _dying)(real, death.when, is_due))


def _dying(real: Callable[..., Any], when: When, is_due: Callable[[], bool]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any) -> Any:
        if not is_due():
            return real(self, *arguments)
        if when == "amid" and arguments and isinstance(arguments[0], bytes):
            real(self, arguments[0][: len(arguments[0]) // 2])
        if when == "after":
            real(self, *arguments)
        return die()

    return call


def _dying_later(real: Callable[..., Any], when: When, is_due: Callable[[], bool]) -> Callable[..., Any]:
    async def call(self: Any, *arguments: Any) -> Any:
        if not is_due():
            return await real(self, *arguments)
        if when == "amid":
            signal.setitimer(signal.ITIMER_REAL, 0.002)  # of SIGALRM nobody takes care
        if when != "before":
            await real(self, *arguments)
        return die()

    return call


def _live(order: Order) -> None:
    """The life of a server; it ends with its nursery."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if order.death is not None:
        arm(order.death)
    status = 1
    try:
        status = main(order.arguments)
    finally:
        sys.stdout.flush()
        os._exit(status)


def tend() -> None:
    """Fork servers, one after the other, until there is nobody who wants one."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        pid = os.fork()
        if not pid:
            _live(order)
        os.write(1, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    tend()
