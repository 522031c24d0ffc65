"""What a reader can be told: options in Kafka's words, all checked before anything is read.

Invariants: an option that isn't known, doesn't fit its use or has a value that can't be right is refused by
its name; nothing here opens a log or needs Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, cast

import msgspec

from forebay.model import (
    TIME_MAX,
    ForebayError,
    Misconfigured,
    Rejected,
    check_group_name,
    check_queue_name,
    from_datetime,
)
from forebay.spark.addresses import missing_url, url_option

Use = Literal["batch", "stream", "lease", "table"]
"""How something is read: once, as a stream, as a stream that competes with workers, or as a table."""
Tables = Literal["outcomes", "dead", "queues", "ledger", "skipped"]

EARLIEST: Final = -2
LATEST: Final = -1
"""What Kafka writes in JSON for the oldest kept message, and for the one that comes next."""

_USES: Final[tuple[Use, ...]] = ("batch", "stream", "lease", "table")
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})
"""What Spark puts among the options by itself."""
_MANY: Final = 1_000_000_000
_MILLISECONDS: Final = re.compile(r"\d{1,15}")

Offsets = Literal["earliest", "latest"] | dict[str, int]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option, as the reference page shows it."""

    name: str
    takes: str
    """What may be given, for people."""
    text: str
    default: str = ""
    uses: tuple[Use, ...] = _USES
    read: Callable[[str, str], Any]
    """From the option's name and its text to its value; Misconfigured when that can't be."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """All that was said, with the defaults of what wasn't. The names are those of the options."""

    url: str
    key: str | None = None
    ca_file: str | None = None
    queue: str | None = None
    subscribe: tuple[str, ...] = ()
    subscribePattern: str | None = None
    startingOffsets: Offsets | None = None
    startingTimestamp: int | None = None
    endingOffsets: Offsets | None = None
    endingTimestamp: int | None = None
    partition: str | None = None
    partitionPrefix: str | None = None
    maxOffsetsPerTrigger: int | None = None
    minPartitions: int = 1
    failOnDataLoss: bool = True
    includeHeaders: bool = False
    groupId: str | None = None
    mode: Literal["log", "lease"] = "log"
    table: Tables | None = None
    contract: str | None = None
    onUndecodable: Literal["null", "fail"] = "null"
    columns: tuple[str, ...] = ()
    archive: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The queues that are named."""
        return self.subscribe if self.queue is None else (self.queue,)

    def matches(self, queue: str) -> bool:
        """Whether a queue is one of those to be read: all of them, when a table names none."""
        if self.subscribePattern is not None:
            return re.fullmatch(self.subscribePattern, queue) is not None
        return queue in self.names or not self.names

    @property
    def subscription(self) -> str:
        """Which queues are read, as a text that is the same for the same ones."""
        return self.subscribePattern or "\n".join(sorted(self.names))

    @property
    def credentials(self) -> dict[str, str]:
        """What opening the log takes besides its address."""
        given = {"key": self.key, "ca_file": self.ca_file}
        return {name: value for name, value in given.items() if value is not None}


def read_options(given: Mapping[str, str], use: Use | None = None) -> Options:
    """The options of a reader; names in any case, as Spark has it. Without a `use`, any use will do."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        if (option := _BY_NAME.get(name.lower())) is not None:
            values[option.name] = option.read(option.name, text)
        elif name.lower() not in _OF_SPARK:
            raise _unknown(name)
    if "url" not in values:
        raise missing_url()
    options = Options(**values)
    _check_use(values, options, use)
    _check_together(options)
    return options


def _unknown(name: str) -> Misconfigured:
    near = get_close_matches(name.lower(), _BY_NAME, 1)
    hint = f"did you mean `{_BY_NAME[near[0]].name}`?" if near else f"known are {', '.join(NAMES)}"
    return Misconfigured(f"there is no option `{name}` for reading", hint=hint, key=name)


def _check_use(values: Mapping[str, Any], options: Options, use: Use | None) -> None:
    if use == "stream" and options.mode == "lease":
        use = "lease"
    if use == "batch" and options.table is not None:
        use = "table"
    if options.mode == "lease" and use in ("batch", "table"):
        raise _wrong("mode", "lease", "is for streams", "use readStream, or leave out `mode`")
    if options.table is not None and use in ("stream", "lease"):
        raise _wrong("table", options.table, "is read once, not as a stream", "use spark.read")
    for name in values if use is not None else ():
        uses = _BY_NAME[name.lower()].uses
        if use not in uses:
            text = f"option `{name}` says nothing to {_USE_TEXTS[cast('Use', use)]}"
            hint = f"leave it out; it is for {' and '.join(_USE_TEXTS[each] for each in uses)}"
            raise Misconfigured(text, hint=hint, key=name)


def _check_together(options: Options) -> None:
    ways = [name for name in ("queue", "subscribe", "subscribePattern") if getattr(options, name)]
    if len(ways) > 1:
        text = f"options `{ways[0]}` and `{ways[1]}` both say what to read"
        raise Misconfigured(text, hint="give one of them", key=ways[1])
    if not ways and options.table is None:
        text = "nothing says which queue to read"
        raise Misconfigured(text, hint="give `queue`, `subscribe` or `subscribePattern`", key="queue")
    for side in ("starting", "ending"):
        if (
            getattr(options, f"{side}Offsets") is not None
            and getattr(options, f"{side}Timestamp") is not None
        ):
            text = f"options `{side}Offsets` and `{side}Timestamp` both say where to begin or end"
            raise Misconfigured(text, hint="give one of them", key=f"{side}Timestamp")
    if options.partition is not None and options.partitionPrefix is not None:
        text = "options `partition` and `partitionPrefix` both say which partitions to read"
        raise Misconfigured(text, hint="give one of them", key="partitionPrefix")
    if options.mode == "lease" and options.groupId is None:
        text = "`mode` = lease needs the group whose messages are taken"
        raise Misconfigured(text, hint="give `groupId`", key="groupId")
    if options.endingOffsets == "earliest":
        raise _wrong(
            "endingOffsets", "earliest", "would be an end before all messages", "give latest or JSON"
        )


def _wrong(name: str, text: str, what: str, hint: str) -> Misconfigured:
    shown = text if len(text) <= 64 else text[:64] + "..."  # noqa: PLR2004 - enough to find it
    return Misconfigured(f"option `{name}` is {shown!r}, which {what}", hint=hint, key=name)


# How each kind of value is read


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise _wrong(name, text, "is empty", "give a value, or leave it out")
    return text


def _url(_name: str, text: str) -> str:
    return url_option(text)


def _queue(name: str, text: str) -> str:
    try:
        return check_queue_name(text)
    except ForebayError as error:
        raise _wrong(name, text, f"is no name of a queue ({error.message})", str(error.hint)) from None


def _queues(name: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_queue(name, part.strip()) for part in text.split(",")))


def _group(name: str, text: str) -> str:
    try:
        return check_group_name(text)
    except ForebayError as error:
        raise _wrong(name, text, f"is no name of a group ({error.message})", str(error.hint)) from None


def _partition(_name: str, text: str) -> str:
    return text  # every text may be a partition, the empty one too


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(_text(name, text))
    except re.error as error:
        hint = "give one that the whole name of a queue matches, as in orders-.*"
        raise _wrong(name, text, f"is no regular expression ({error})", hint) from None
    return text


def _offsets(name: str, text: str) -> Offsets:
    if text.lower() in ("earliest", "latest"):
        return cast('Literal["earliest", "latest"]', text.lower())
    hint = 'give earliest, latest, or JSON as in {"orders": 1200, "invoices": -2}'
    try:
        found = json.loads(text)
    except ValueError:
        raise _wrong(name, text, "is neither earliest, latest nor JSON", hint) from None
    if not isinstance(found, dict) or not found:
        raise _wrong(name, text, "is no JSON object of queues and sequence numbers", hint)
    for queue, place in found.items():
        if type(place) is not int or place < EARLIEST or place == 0:
            what = f"says {place!r} for {queue!r}: neither a sequence number nor -1 (latest) or -2 (earliest)"
            raise _wrong(name, text, what, hint)
    return found


def _time(name: str, text: str) -> int:
    hint = "give milliseconds since 1970, or a time with its zone as in 2026-01-31T12:00:00Z"
    if _MILLISECONDS.fullmatch(text):
        if (moment := int(text) * 1000) > TIME_MAX:
            raise _wrong(name, text, "is after the year 9999", hint)
        return moment
    try:
        return from_datetime(datetime.fromisoformat(text))
    except ValueError:
        raise _wrong(name, text, "is no time", hint) from None
    except Rejected as error:
        raise _wrong(name, text, f"is no time ({error.message})", hint) from None


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= _MANY and len(text) <= 10):  # noqa: PLR2004 - the digits of the most
        raise _wrong(name, text, "is no number of that kind", f"give a whole number from 1 to {_MANY:,}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _wrong(name, text, "is neither true nor false", "give one of them")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in words:
            raise _wrong(name, text, "is not known", f"give one of {', '.join(words)}")
        return text.lower()

    return read


def _list(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts) or len(set(parts)) != len(parts):
        raise _wrong(name, text, "has an empty name, or one twice", "give names with commas between them")
    return parts


_USE_TEXTS: Final[dict[Use, str]] = {
    "batch": "a batch read",
    "stream": "a stream",
    "lease": "a stream with mode lease",
    "table": "a table",
}
_LOG: Final[tuple[Use, ...]] = ("batch", "stream")
_STREAMS: Final[tuple[Use, ...]] = ("stream", "lease")
_MESSAGES: Final[tuple[Use, ...]] = ("batch", "stream", "lease")

OPTIONS: Final = (
    Option(
        name="url", takes="an address", read=_url,
        text="The log: `postgresql://`, `sqlite:///`, `tarantool://`, or a server's `http://` or `https://`. "
        "Needed.",
    ),
    Option(name="key", takes="an API key", read=_text, text="For a server that asks for one."),
    Option(
        name="ca_file", takes="a path", read=_text,
        text="Certificates that the server's own is checked against; a file on every machine that reads.",
    ),
    Option(name="queue", takes="a name", read=_queue, text="The queue to read."),
    Option(
        name="subscribe", takes="names, with commas", read=_queues, text="Several queues, in one DataFrame."
    ),
    Option(
        name="subscribePattern", takes="a regular expression", read=_pattern,
        text="All queues whose whole name matches; a stream also reads those that are made while it runs, "
        "from their first message on.",
    ),
    Option(
        name="startingOffsets", takes="earliest, latest, JSON", default="earliest; of a stream: latest",
        read=_offsets, uses=_LOG,
        text='Where to begin: sequence numbers by queue, as in `{"orders": 1200}`; -2 is the oldest kept '
        "message, -1 the next one to come. A stream that goes on from its checkpoint doesn't look at it.",
    ),
    Option(
        name="startingTimestamp", takes="ms since 1970, or ISO 8601", read=_time, uses=_LOG,
        text="Begin with the first message that the log took at this time or later.",
    ),
    Option(
        name="endingOffsets", takes="latest, JSON", default="latest", read=_offsets, uses=("batch",),
        text="The first sequence number that is not read, by queue; -1 is the next one to come.",
    ),
    Option(
        name="endingTimestamp", takes="ms since 1970, or ISO 8601", read=_time, uses=("batch",),
        text="End before the first message that the log took at this time or later.",
    ),
    Option(
        name="partition", takes="a name", default="all", read=_partition, uses=("batch",),
        text="Only the messages of this partition; an empty name is that of messages without one.",
    ),
    Option(
        name="partitionPrefix", takes="a text", default="all", read=_text, uses=("batch",),
        text="Only the messages of partitions whose names begin with this.",
    ),
    Option(
        name="maxOffsetsPerTrigger", takes="a number", default="no limit; with mode lease: 10000",
        read=_count, uses=_STREAMS,
        text="Messages in a micro-batch at most, shared fairly by the queues.",
    ),
    Option(
        name="minPartitions", takes="a number", default="1", read=_count, uses=_MESSAGES,
        text="Tasks that read at once at least, if there are so many messages. A task has at most 262,144; "
        "65,536 without this option, and with mode lease.",
    ),
    Option(
        name="failOnDataLoss", takes="true, false", default="true", read=_flag, uses=_LOG,
        text="Whether messages that should be read and are gone, or are damaged, are an error. Otherwise "
        "they are skipped, with a warning, and counted in the table `skipped`; those that a stream finds "
        "gone when it plans a batch also in its offsets, as `skipped`.",
    ),
    Option(
        name="includeHeaders", takes="true, false", default="false", read=_flag, uses=_MESSAGES,
        text="Whether there is a column `headers`.",
    ),
    Option(
        name="groupId", takes="a name", read=_group, uses=("stream", "lease", "table"),
        text="The consumer group whose place in the queue follows the query, for all to see. With mode "
        "lease, the group whose messages are taken. Of a table, the group to look at.",
    ),
    Option(
        name="mode", takes="log, lease", default="log", read=_one_of("log", "lease"), uses=_MESSAGES,
        text="`log` reads everything, and again if asked to. `lease` takes messages as workers do: each "
        "goes to one of them.",
    ),
    Option(
        name="table", takes="outcomes, dead, queues, ledger, skipped", uses=("table",),
        read=_one_of("outcomes", "dead", "queues", "ledger", "skipped"),
        text="Read a table about the queues, not their messages.",
    ),
    Option(
        name="contract", takes="a path", read=_text, uses=_MESSAGES,
        text="The contract of the queues: its fields are columns, and `_error` says why they are null.",
    ),
    Option(
        name="onUndecodable", takes="null, fail", default="null", read=_one_of("null", "fail"),
        uses=_MESSAGES,
        text="What becomes of a message that isn't as the contract says: its fields are null, or the query "
        "fails.",
    ),
    Option(
        name="columns", takes="names, with commas", default="all", read=_list,
        text="The columns to have, in this order. Spark can't leave out columns by itself: what isn't read "
        "costs nothing.",
    ),
    Option(
        name="archive", takes="a path", read=_text, uses=("batch", "table"),
        text="The folder of an archive: what it has is read from there, and the rest from the log.",
    ),
)  # fmt: skip
"""Every option, in the order of the reference page."""

NAMES: Final = tuple(option.name for option in OPTIONS)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
