"""One round of a queue's disk thread: everything that has gathered since the last one.

Order within a round: dead letters before the acks of their entries, so that a crash between them repeats an
entry and loses none; pushes before reads, so that what was just pushed is read from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from forebay.deliver.attempt_file import AttemptFile, Attempts
from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.entry import Entry
from forebay.deliver.entry_store import Backing
from forebay.fastqueue.record import Record
from forebay.model import ForebayError, Rejected, Unavailable

__all__ = ["DiskRound", "Done", "Push"]

Done: TypeAlias = Callable[[ForebayError | None], None]
"""Is called once, with the reason where something wasn't done."""


class Push:
    """An entry on its way to the disk."""

    __slots__ = ("data", "done", "entry", "error")

    def __init__(self, data: bytes, done: Done, entry: Entry | None = None) -> None:
        self.data = data
        self.done = done
        self.entry = entry
        """The entry in memory that it was until now, if it was one."""
        self.error: ForebayError | None = None


class DiskRound:
    """The work of one round, and after `run` its results."""

    __slots__ = (
        "acks",
        "attempts",
        "buried",
        "bytes_max",
        "count",
        "failure",
        "has_acked",
        "letter_error",
        "letters",
        "pushes",
        "read_error",
        "records",
    )

    def __init__(
        self,
        pushes: list[Push],
        acks: list[int],
        letters: list[tuple[bytes, Done]],
        *,
        count: int,
        bytes_max: int,
        attempts: Attempts | None = None,
    ) -> None:
        self.pushes = pushes
        self.acks = acks
        self.letters = letters
        self.count = count
        self.bytes_max = bytes_max
        self.attempts = attempts
        """Attempts to be noted, if some are due."""
        self.has_acked = False
        self.records: Sequence[Record] = ()
        self.read_error: ForebayError | None = None
        self.letter_error: ForebayError | None = None
        self.failure: Exception | None = None
        """Why acks or what was due failed; acks are then to be tried again."""

    def run(self, backing: Backing, dead: DeadLetters, noted: AttemptFile | None = None) -> None:
        """Do it; raises nothing, since every pusher waits for its answer."""
        if self.letters:
            try:
                dead.add([letter for letter, _ in self.letters])
            except Exception as error:  # noqa: BLE001 - as above
                self.letter_error = _explained(error)
        try:
            if self.acks:
                backing.ack(self.acks)
                self.acks, self.has_acked = [], True
        except Exception as error:  # noqa: BLE001 - as above
            self.failure = error
        if self.pushes:
            self._push(backing, self.pushes)
        try:
            if self.count > 0:
                self.records = backing.read(self.count, self.bytes_max)
        except Exception as error:  # noqa: BLE001 - as above
            self.read_error = _explained(error)
        try:
            backing.tick()
        except Exception as error:  # noqa: BLE001 - as above
            self.failure = error
        if noted is not None and self.attempts is not None:
            noted.save(self.attempts)

    def _push(self, backing: Backing, pushes: Sequence[Push]) -> None:
        try:
            backing.push([push.data for push in pushes])
        except Rejected as error:
            if len(pushes) == 1:
                pushes[0].error = error
            else:  # one of them is at fault: each by itself
                for push in pushes:
                    self._push(backing, [push])
        except Exception as error:  # noqa: BLE001 - as above
            known = _explained(error)
            for push in pushes:
                push.error = known


def _explained(error: Exception) -> ForebayError:
    if isinstance(error, ForebayError):
        return error
    text = f"the disk failed: {error}" if isinstance(error, OSError) else f"the queue failed: {error!r}"
    return Unavailable(text, hint="look at the disk, then at the logs", retry_after_seconds=1.0)
