"""What can be said to the sink: its options, and which columns a DataFrame may bring.

Both are judged when a write is planned, before a row has moved: pure functions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.model import Misconfigured, Rejected, check_queue_name
from forebay.model.limits import check_text
from forebay.spark.addresses import url_option

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

APP_ID_BYTES_MAX: Final = 160
"""A name of a stage holds it, beside a version and an id."""
VERSION_MAX: Final = (1 << 63) - 1

_NAMES: Final = {
    name.lower(): name
    for name in (
        *("url", "key", "ca_file", "queue", "createQueues", "contract"),
        *("badRows", "txnAppId", "txnVersion"),
    )
}
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_DIGITS: Final = 19
_TRUTHS: Final = {"true": True, "false": False}
_TEXT: Final = ("string", "varchar", "char")
_TYPES: Final = {
    "value": ("binary", *_TEXT),
    "queue": _TEXT,
    "partition": _TEXT,
    "key": _TEXT,
    "headers": ("map<string,string>",),
    "start_time": ("timestamp",),
}
MESSAGE_COLUMNS: Final = tuple(_TYPES)
"""What a message is made of; all but `value` may be missing."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one write."""

    url: str
    key: str | None = None
    ca_file: str | None = None
    queue: str | None = None
    """Where all rows go; without it, each row says so."""
    txn_app_id: str | None = None
    txn_version: int | None = None
    bad_rows: str | None = None
    """The queue that takes rows which can't be messages; without it they fail the write."""
    create_queues: bool = False
    contract: str | None = None
    """A file: rows have the fields of the queue in place of a value."""

    @property
    def credentials(self) -> dict[str, str]:
        """What opening the log takes besides its address."""
        given = {"key": self.key, "ca_file": self.ca_file}
        return {name: value for name, value in given.items() if value is not None}


def sink_options(options: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """What was said, checked; Misconfigured names the option."""
    said = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS_OWN}
    for name in said:
        if name not in _NAMES:
            raise _unknown(name)
    read = SinkOptions(
        url=url_option(said.get("url", "")),
        key=said.get("key"),
        ca_file=said.get("ca_file"),
        queue=_queue_name("queue", said),
        txn_app_id=_app_id(said.get("txnappid")),
        txn_version=_version(said.get("txnversion")),
        bad_rows=_queue_name("badRows", said),
        create_queues=_truth("createQueues", said),
        contract=said.get("contract"),
    )
    return _agreeing(read, stream=stream)


def exactly_once(app: str, version: int) -> dict[str, str]:
    """The options that make a batch write happen once: for `foreachBatch`, and for jobs that are repeated.

    `df.write.format("forebay").options(**exactly_once("totals", batch_id))`: `app` names this very write
    (two writes of one function need two names), `version` rises from one call to the next.
    """
    return {"txnAppId": app, "txnVersion": str(version)}


def check_columns(schema: StructType, options: SinkOptions, fields: Sequence[str] | None = None) -> None:
    """Raise Rejected unless rows like these can be messages; `fields` are those of a contract."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = (
        set(MESSAGE_COLUMNS) if fields is None else (set(MESSAGE_COLUMNS) - {"value", "queue"}) | set(fields)
    )
    if odd := [name for name in found if name not in wanted]:
        known = ", ".join(sorted(wanted))
        what = "drop them, or make them part of the value: to_json(struct(...))"
        raise Rejected(f"columns that no message has: {', '.join(odd)}", hint=f"there are {known}; {what}")
    missing = [name for name in (("value",) if fields is None else fields) if name not in found]
    if missing:
        raise Rejected(f"columns are missing: {', '.join(missing)}", hint="rename or add them")
    if options.queue is None and "queue" not in found:
        raise Rejected(
            "nothing says which queue is written to", hint="set the option `queue`, or add a column"
        )
    for name, kind in found.items():
        if fields is None or name not in fields:
            _check_type(name, kind)


def _check_type(name: str, kind: str) -> None:
    taken = _TYPES[name]
    if kind not in taken and kind.partition("(")[0].partition(" ")[0] not in taken:
        raise Rejected(f"column {name!r} is {kind}, not {taken[0]}", hint="cast it")


def _agreeing(read: SinkOptions, *, stream: bool) -> SinkOptions:
    if stream and read.txn_version is not None:
        text = "a stream counts its batches itself"
        raise Misconfigured(text, hint="leave out txnVersion", key="txnVersion")
    if not stream and (read.txn_app_id is None) != (read.txn_version is None):
        text = "txnAppId and txnVersion come together"
        raise Misconfigured(text, hint="set both, or neither", key="txnAppId")
    if read.contract is not None and read.queue is None:
        text = "a contract says what the rows of one queue are, and none is named"
        raise Misconfigured(text, hint="set the option `queue`", key="queue")
    return read


def _unknown(name: str) -> Misconfigured:
    near = difflib.get_close_matches(name, _NAMES, 1)
    meant = f"did you mean {_NAMES[near[0]]}?" if near else f"there are {', '.join(_NAMES.values())}"
    return Misconfigured(f"the sink has no option {name!r}", hint=meant, key=name)


def _queue_name(name: str, said: Mapping[str, str]) -> str | None:
    value = said.get(name.lower())
    if value is None:
        return None
    try:
        return check_queue_name(value)
    except Rejected as error:
        raise Misconfigured(f"the option {name}: {error.message}", hint=error.hint, key=name) from error


def _app_id(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        check_text(value, "txnAppId", APP_ID_BYTES_MAX)
    except Rejected as error:
        raise Misconfigured(error.message, hint=error.hint, key="txnAppId") from error
    if not value:
        raise Misconfigured("txnAppId is empty", hint="name what is written", key="txnAppId")
    return value


def _version(value: str | None) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS and int(value) <= VERSION_MAX):
        text = f"txnVersion is {value[:64]!r}"
        raise Misconfigured(text, hint="give a whole number from 0, such as a batch's id", key="txnVersion")
    return int(value)


def _truth(name: str, said: Mapping[str, str]) -> bool:
    value = said.get(name.lower(), "false")
    if value.lower() not in _TRUTHS:
        raise Misconfigured(f"the option {name} is {value[:64]!r}", hint="give true or false", key=name)
    return _TRUTHS[value.lower()]
