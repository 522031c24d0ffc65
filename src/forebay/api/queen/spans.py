"""The stretch of time that somebody asks about, and in which steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from forebay.api.calls import Call
from forebay.api.queen.reading import Query
from forebay.api.queen.samples import MINUTE, Bucket, width_of
from forebay.api.queen.times import iso, parse_time
from forebay.model import Rejected

HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Span(NamedTuple):
    """From when to when (µs), in steps of so many minutes."""

    begin: int
    end: int
    minutes: int

    def shown(self) -> dict[str, Any]:
        """What every answer with a time series begins with."""
        return {"timeRange": {"from": iso(self.begin), "to": iso(self.end)}, "bucketMinutes": self.minutes}

    def buckets(self, call: Call) -> Sequence[Bucket]:
        """What this server saw in it, oldest first."""
        return call.desk.samples.series.between(self.begin, self.end, self.minutes)


def span_of(call: Call, query: Query, *, default: int = HOUR, minutes: int | None = None) -> Span:
    """The time between `from` and `to`; until now, and from an hour before, when they aren't said."""
    to, since = query.text("to"), query.text("from")
    end = call.context.clock.now() if to is None else parse_time(to, "to")
    begin = end - default if since is None else parse_time(since, "from")
    if begin > end:
        raise Rejected("`from` is after `to`", hint="exchange them")
    return Span(begin, end, width_of(begin, end) if minutes is None else minutes)
