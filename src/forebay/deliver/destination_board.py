"""DestinationBoard: where processes say how their destinations are, and hear whether these are paused.

Records beside the blocks of a log. Reports vanish when they aren't renewed; a pause stays until it is ended.
Several processes may deliver to one destination: each reports, and a pause holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Meta

from forebay.log.seam import Log
from forebay.log.values import Record
from forebay.model import Clock, Rejected, SystemClock
from forebay.store.seam import Store
from forebay.store.store import LogStore

__all__ = [
    "DestinationBoard", "DestinationPause", "DestinationReport", "DestinationStatus", "Destinations",
    "LogDestinationBoard", "PauseForm", "destination_board_of",
]  # fmt: skip

REPORT_SECONDS: Final = 15.0
"""How long a report holds: a process that says nothing for so long is gone."""
DESTINATIONS_MAX: Final = 1_000
NAME_MAX: Final = 100
_REPORTS: Final = "deliver.report"
_PAUSES: Final = "deliver.pause"
_SECOND: Final = 1_000_000
_encode: Final = msgspec.msgpack.Encoder().encode
T = TypeVar("T")

_Text = Annotated[str, Meta(max_length=2_000)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class DestinationReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one process fares with one destination. Numbers count from its start."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    process: Annotated[str, Meta(min_length=1, max_length=200)]
    url: _Text
    """Without secrets."""
    queue: _Text
    group: _Text
    breaker: Annotated[str, Meta(max_length=20)]
    in_hand: _Count = 0
    """Messages that are taken and not settled."""
    delivered: _Count = 0
    """Requests that were."""
    failed: _Count = 0
    """Attempts that failed."""
    buried: _Count = 0
    """Messages that became dead letters."""
    last_failure: _Text = ""
    disabled_because: _Text = ""
    """It failed for too long, and is to be paused for this reason."""


class DestinationPause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a destination gets nothing, and since when (µs)."""

    reason: _Text
    since: int
    by_itself: bool = False
    """It failed for too long; otherwise somebody said so."""


class DestinationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One destination, and the processes that deliver to it."""

    name: str
    pause: DestinationPause | None = None
    reports: Sequence[DestinationReport] = ()


class Destinations(msgspec.Struct, frozen=True, kw_only=True):
    """All destinations that are paused, or that a process delivers to."""

    destinations: Sequence[DestinationStatus]


class PauseForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause a destination."""

    reason: _Text = ""


@runtime_checkable
class DestinationBoard(Protocol):
    """The verbs."""

    async def report_destination(self, report: DestinationReport) -> DestinationStatus:
        """Say how a destination is, pause it if it is disabled, and hear whether it is paused."""
        ...

    async def destinations(self) -> Destinations:
        """All of them."""
        ...

    async def pause_destination(self, name: str, reason: str = "") -> DestinationStatus:
        """Send it nothing more until it is resumed; one that is paused already stays as it is."""
        ...

    async def resume_destination(self, name: str) -> DestinationStatus:
        """Send it messages again."""
        ...


def destination_board_of(store: Store) -> DestinationBoard | None:
    """The board of a store; None if it has none."""
    if isinstance(store, LogStore):
        return LogDestinationBoard(store.log, clock=store.clock)
    return store if isinstance(store, DestinationBoard) else None


class LogDestinationBoard:
    """The board in a log's records."""

    def __init__(self, log: Log, *, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock or SystemClock()

    async def report_destination(self, report: DestinationReport) -> DestinationStatus:
        """Say how a destination is, pause it if it is disabled, and hear whether it is paused."""
        _check_name(report.name)
        until = self._clock.now() + round(REPORT_SECONDS * _SECOND)
        await self._log.commit(
            records=[Record(_REPORTS, f"{report.name}/{report.process}", _encode(report), until)]
        )
        pause = await self._pause(report.name)
        if pause is None and report.disabled_because:
            pause = await self._begin_pause(report.name, report.disabled_because, by_itself=True)
        return DestinationStatus(name=report.name, pause=pause, reports=(report,))

    async def destinations(self) -> Destinations:
        """All of them."""
        reports: dict[str, list[DestinationReport]] = {}
        for kept in await self._log.scan(_REPORTS, limit=DESTINATIONS_MAX):
            report = _read(kept.value, DestinationReport)
            if report is not None:
                reports.setdefault(report.name, []).append(report)
        kept_pauses = await self._log.scan(_PAUSES, limit=DESTINATIONS_MAX)
        pauses = {kept.key: _read(kept.value, DestinationPause) for kept in kept_pauses}
        return Destinations(
            destinations=[
                DestinationStatus(name=name, pause=pauses.get(name), reports=tuple(reports.get(name, ())))
                for name in sorted({*reports, *pauses})
            ]
        )

    async def pause_destination(self, name: str, reason: str = "") -> DestinationStatus:
        """Send it nothing more until it is resumed; one that is paused already stays as it is."""
        _check_name(name)
        pause = await self._pause(name) or await self._begin_pause(name, reason, by_itself=False)
        return DestinationStatus(name=name, pause=pause)

    async def resume_destination(self, name: str) -> DestinationStatus:
        """Send it messages again."""
        _check_name(name)
        await self._log.commit(records=[Record(_PAUSES, name, None)])
        return DestinationStatus(name=name)

    async def _begin_pause(self, name: str, reason: str, *, by_itself: bool) -> DestinationPause:
        pause = DestinationPause(reason=reason, since=self._clock.now(), by_itself=by_itself)
        await self._log.commit(records=[Record(_PAUSES, name, _encode(pause))])
        return pause

    async def _pause(self, name: str) -> DestinationPause | None:
        kept = await self._log.records(_PAUSES, [name])
        return _read(kept[0].value, DestinationPause) if kept else None


def _read(value: bytes, form: type[T]) -> T | None:
    """What a record says; None if it can't be read: another version wrote it."""
    try:
        return msgspec.msgpack.decode(value, type=form)
    except (msgspec.MsgspecError, ValueError):
        return None


def _check_name(name: str) -> None:
    if not 0 < len(name) <= NAME_MAX or "/" in name:
        raise Rejected(
            f"{name[:NAME_MAX]!r} is not the name of a destination", hint="see `destinations list`"
        )
