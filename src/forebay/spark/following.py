"""The group of a query goes where the query is: its lag shows like any worker's, and retention waits for it.

A stream does it whenever Spark plans. `follow` does it as soon as a batch is done, by a listener of the
session: the only way for the last batch of a query that is stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from forebay.log.values import Group, Position, Queue
from forebay.model import ForebayError
from forebay.spark.holding import Holdings, Place
from forebay.spark.logs import Face, Opener, face
from forebay.spark.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_logger: Final = logging.getLogger("forebay.spark")


def address_mark(url: str) -> str:
    """Which log an address is, without its user and password."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:  # what it says has a part of the address, which may be one of the password
        parts, port = urlsplit(f"//{url.rpartition('@')[2]}"), None
    place = f"{parts.hostname or ''}:{port or ''}{parts.path}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]


class Follower:
    """Brings groups to where a query is; asks the log only when that has changed."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._groups: dict[tuple[str, int], Group] = {}
        self._reached: dict[tuple[str, int], int] = {}

    def advance(self, place: Offset) -> int:
        """Bring the group of a place there, in every queue; how many messages became done by it."""
        if place.group is None:
            return 0
        done = 0
        for name, to in place.queues.items():
            key = (place.group, place.numbers[name])
            if self._reached.get(key, 0) < to and (group := self._group(key, name, to)) is not None:
                done += self._face(self._face.log.advance(group, to))
                self._reached[key] = to
        return done

    def _group(self, key: tuple[str, int], name: str, to: int) -> Group | None:
        """The group in one queue, made at the place if it isn't there; None when the queue is gone."""
        if key not in self._groups:
            queue = self._queue(key[1], name)
            if queue is None:
                return None
            self._groups[key] = self._face(self._face.log.create_group(queue, key[0], Position(to)))
        return self._groups[key]

    def _queue(self, number: int, name: str) -> Queue | None:
        found = self._face(self._face.log.queues())
        return next((queue for queue in found if queue.number == number and queue.name == name), None)


class Following(StreamingQueryListener):
    """Advances the groups of all queries of a session that read one log."""

    def __init__(self, opener: Opener, url: str, credentials: dict[str, str]) -> None:
        self._opener = opener
        self._url = url
        self._credentials = credentials
        self._mark = address_mark(url)
        self._follower: Follower | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Bring the groups to where the batch has ended. A log that is away is told the next time."""
        for source in event.progress.sources:
            try:
                self._done(json.loads(source.endOffset))
            except (msgspec.ValidationError, TypeError, ValueError):
                continue  # another source's offset
            except ForebayError as error:
                _logger.warning("a group could not be brought to where its query is: %s", error)

    def _done(self, place: object) -> None:
        """Tell the log that everything before a place is done, if it is a place in this log."""
        if not isinstance(place, dict) or place.get("at") != self._mark:
            return
        opened = face(self._opener, self._url, **self._credentials)
        if "lease" in place:
            lease = msgspec.convert(place, Place)
            Holdings(opened, lease.owner).settle_through(lease.lease)
            return
        if self._follower is None:
            self._follower = Follower(opened)
        self._follower.advance(Offset.of(place))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Its last progress has said it all."""


def follow(spark: SparkSession, url: str, opener: Opener, **credentials: str) -> Following:
    """Let groups follow the queries of a session at once; `spark.streams.removeListener` ends it."""
    listener = Following(opener, url, credentials)
    spark.streams.addListener(listener)
    return listener
