"""One write that puts, settles and keeps records: all of it or nothing.

Invariants: shelves hear of it after the log has it, and not at all if the log refuses; the log alone decides
whether a lease came in time; a call that is repeated under its id is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.log.seam import Log
from forebay.log.values import Append, Receipt, Record, Settlement
from forebay.model import Conflict, Corrupt, ForebayError, LeaseLost, Rejected, Unavailable, bitmap
from forebay.model.identity import ID_BYTES
from forebay.store.asking import listed
from forebay.store.plans import Plan
from forebay.store.window import Window

TRIES: Final = 3
"""How often it is tried when the log refuses something that only goes back along."""
_NO_TOKEN: Final = -1
"""Of no claim, ever."""


class Transaction:
    """What is to be written together, and what that means for the windows it is about."""

    def __init__(
        self, log: Log, appends: Sequence[Append], records: Sequence[Record], id: bytes | None
    ) -> None:
        if id is not None and len(id) != ID_BYTES:
            raise Rejected(f"the id has {len(id)} bytes", hint="give 16, as `mint` makes them")
        self._log = log
        self._appends = appends
        self._records = records
        self._id = id
        self._plans: list[tuple[Window, Plan]] = []

    def add(self, window: Window, plans: Sequence[Plan]) -> None:
        """Settle tasks of a window along."""
        self._plans += [(window, plan) for plan in plans]

    async def commit(self) -> Receipt:
        """Write it, then tell the shelves; LeaseLost names the tasks that came too late."""
        lost = [task_id for _, plan in self._plans for task_id in plan.lost]
        receipt = await self._write_before(lost) if lost else await self._write()
        for window, plan in self._plans:
            if plan.held:
                await window.conclude(plan, again=self._id is not None)
        return receipt

    async def _write(self) -> Receipt:
        tries = TRIES
        while True:
            tries -= 1
            try:
                return await self._try()
            except Conflict as conflict:
                try:
                    await self._answer(conflict, last=not tries)
                except BaseException:
                    self._doubt()
                    raise

    async def _try(self) -> Receipt:
        try:
            for window, plan in self._plans:
                await window.settler.take_along(plan)
            return await self._commit([settlement for _, plan in self._plans for settlement in plan.told()])
        except Conflict:
            raise
        except BaseException as error:
            if isinstance(error, ForebayError) and not isinstance(error, Unavailable):
                await self._undo()
            self._doubt()
            raise

    async def _answer(self, conflict: Conflict, *, last: bool) -> None:
        """Raise what the caller is told, unless it may only be about what was to go back along."""
        is_known = type(conflict) is not Conflict  # the version of a record
        late = [] if is_known else await self._late(conflict)
        along = any(plan.takes_along() for _, plan in self._plans)
        if late or is_known or last or not along:
            await self._undo()
            if late:
                raise _lost(late)
            raise conflict if is_known or not along else _in_between()
        try:
            for window, plan in self._plans:
                await window.settler.give_back(plan)
        except Unavailable:
            raise conflict from None  # that nothing was written is known
        self._forget_rest()

    async def _undo(self) -> None:
        """The log has refused it: what was withdrawn for it goes back."""
        for window, plan in self._plans:
            await window.settler.undo(plan)
        self._forget_rest()

    def _doubt(self) -> None:
        """What was withdrawn for it, and has not gone back, does so later."""
        for window, plan in self._plans:
            window.settler.doubt(plan)

    def _forget_rest(self) -> None:
        for _, plan in self._plans:
            plan.forget_along()

    async def _write_before(self, lost: Sequence[int]) -> Receipt:
        """Leases are lost: that is what a call finds that has been carried out before, under its id.

        The log remembers the id. It is asked by a commit that it can't carry out now.
        """
        if self._id is None:
            raise _lost(lost)
        group = next(window.group.number for window, plan in self._plans if plan.lost)
        never = Settlement(group=group, token=_NO_TOKEN, first=lost[0], count=1, done=bitmap.full(1))
        try:
            return await self._commit([never])
        except Conflict:
            raise _lost(lost) from None

    async def _commit(self, settlements: Sequence[Settlement]) -> Receipt:
        return await self._log.commit(
            self._appends, settlements, id=self._id, atomic=True, records=self._records
        )

    async def _late(self, conflict: Conflict) -> list[int]:
        try:
            return [
                task_id for window, plan in self._plans for task_id in await window.settler.drop_late(plan)
            ]
        except (Unavailable, Corrupt):
            raise conflict from None  # nothing was written: that is known, if not whose fault it is


def _in_between() -> Unavailable:
    return Unavailable(
        f"nothing was changed: what goes back along was changed by others in between, {TRIES} times",
        retry_after_seconds=0.1,
    )


def _lost(lost: Sequence[int]) -> LeaseLost:
    return LeaseLost(
        f"nothing was changed, since {len(lost)} tasks were no longer yours: {listed(lost)}",
        hint="drop their work; the others are still yours",
        ids=sorted(lost),
    )
