"""Destination: the seam between what is queued and where it goes."""

from __future__ import annotations

from typing import Protocol

from forebay.deliver.values import Outcome, Prepared, Request

__all__ = ["Destination"]


class Destination(Protocol):
    """One place that takes requests.

    `prepare` is CPU, `send` is I/O, so that a pipeline can keep them apart. Whether a request may be sent now
    (breaker, pace, pauses) is decided before `send`, by `forebay.deliver.admission`.
    """

    @property
    def name(self) -> str:
        """A name without secrets, for people and as the label of metrics."""
        ...

    def prepare(self, request: Request, *, id: str) -> Prepared:
        """Make a request ready to be sent; may run in a thread. Rejected when it can never be sent."""
        ...

    async def send(self, prepared: Prepared) -> Outcome:
        """Send it once, within bounds of time and memory. Raises nothing but cancellation.

        Cancelled, it may have been delivered or not.
        """
        ...

    async def close(self) -> None:
        """End all connections. May be called twice; nothing can be sent afterwards."""
        ...
