"""The log's verbs as they cross the network: their arguments by name, and what they answer.

Made from the seam's own annotations, so that server and client can't differ. All verbs but those that open,
close and hang up. A block that is appended is sent as its body, in which everything else is; a damaged block
that was found is sent as what is known of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, get_type_hints

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Append
from forebay.model import Corrupt, Rejected, decode

PATH: Final = "/v1/log"
LONG_SECONDS: Final = 270.0
"""How much longer than others the verbs may take that move much, or meet the locks of others."""

_VERBS: Final = (
    "create_queue", "configure_queue", "queue", "queues", "delete_queue",
    "create_group", "groups", "seek", "advance", "delete_group",
    "commit",
    "claim", "mark", "due", "heartbeat", "reclaim", "recall", "holding", "seize", "owners", "retire",
    "stamp", "outlook",
    "read", "spans", "dead_letters", "outcomes", "progress", "find", "locate", "records", "scan",
    "quarantined",
    "flows", "lanes", "lane_count", "stats",
    "redrive", "purge", "restore",
    "stage", "publish",
    "sweep", "inbox_rejected", "trim",
)  # fmt: skip
_LONG: Final = frozenset(
    {"delete_queue", "delete_group", "seek", "advance", "flows", "lanes", "lane_count", "stats"}
    | {"progress", "stage", "publish", "sweep", "trim"}
)
_REPEATABLE: Final = frozenset(
    {"create_queue", "configure_queue", "queue", "queues", "create_group", "groups", "advance", "heartbeat"}
    | {"recall", "holding", "owners", "stamp", "outlook", "read", "spans", "dead_letters", "outcomes"}
    | {"find", "locate", "progress"}
    | {"records", "scan", "quarantined", "flows", "lanes", "lane_count", "stats", "stage", "trim"}
    | {"inbox_rejected"}
)
"""Verbs that may be sent twice, whatever is asked; of `commit`, `publish` and `seek` it depends."""


_NUMBERS: Final = frozenset({"tokens", "ids"})
_NUMBER_MAX: Final = (1 << 63) - 1


class SentBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A block on its way into a queue, by the queue's number."""

    queue: int
    body: bytes
    replayed: bool = False

    def append(self) -> Append:
        """What it stands for."""
        try:
            return Append(self.queue, decode(self.body), self.body, replayed=self.replayed)
        except Corrupt as error:
            raise Rejected(f"this is no block: {error.message}", hint="see docs: the block format") from None


class _Damage(msgspec.Struct, frozen=True, array_like=True):
    """A damaged block that was found."""

    message: str
    hint: str | None
    queue: str | None
    first: int | None
    last: int | None


class Verb:
    """One verb: how its arguments and its answer are written and read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"{PATH}/{name}"
        self.is_long = name in _LONG
        method = getattr(Log, name)
        hints = get_type_hints(method)
        self._signature = inspect.signature(method)
        self._has_blocks = "appends" in hints
        self.answer = msgspec.msgpack.Decoder(hints.pop("return"), dec_hook=_found)
        self.form: Any = msgspec.defstruct(
            f"{name}_arguments",
            [self._field(field, hints[field]) for field in hints],
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def _field(self, name: str, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
        default = self._signature.parameters[name].default
        kind = list[SentBlock] if name == "appends" else kind
        return (name, kind) if default is inspect.Parameter.empty else (name, kind, default)

    def named(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name; TypeError where the verb has none of them."""
        named = dict(self._signature.bind(None, *arguments, **options).arguments)
        del named["self"]
        return named

    def sent(self, named: Mapping[str, Any]) -> bytes:
        """Arguments as they are sent; Rejected where they can't be."""
        if "appends" in named:
            named = {**named, "appends": [SentBlock(a.queue, a.body, a.replayed) for a in named["appends"]]}
        for name in named.keys() & _NUMBERS:  # what no message and no claim can have is looked for nowhere
            named = {**named, name: [number for number in named[name] if _is_sendable(number)]}
        try:
            return _encode(named)
        except (TypeError, ValueError, OverflowError) as error:
            raise Rejected(f"this can't be sent to a log: {error}", hint="check the arguments") from None

    def received(self, form: Any) -> dict[str, Any]:
        """Arguments as the log takes them."""
        named = {name: getattr(form, name) for name in form.__struct_fields__}
        if self._has_blocks:
            named["appends"] = [block.append() for block in named["appends"]]
        return named

    def may_repeat(self, named: Mapping[str, Any]) -> bool:
        """Whether asking twice is the same as asking once."""
        if self.name == "commit":
            return named.get("id") is not None or not (named.get("settlements") or named.get("records"))
        if self.name == "publish":
            return not named.get("records")
        return self.name in _REPEATABLE or (self.name == "seek" and bool(named.get("dry_run")))


def encode_answer(value: Any, *, packed: bool) -> bytes:
    """What a verb has answered."""
    return _encode(value) if packed else msgspec.json.encode(value, enc_hook=_shown)


def _is_sendable(value: Any) -> bool:
    return type(value) is not int or -_NUMBER_MAX <= value <= _NUMBER_MAX


def _shown(value: Any) -> Any:
    """A collection that msgspec doesn't know, or a damaged block."""
    if isinstance(value, Corrupt):
        return _Damage(value.message, value.hint, value.queue, value.first, value.last)
    if isinstance(value, Sequence | set | frozenset | range):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no value of a log")


def _found(kind: type, value: Any) -> Any:
    if kind is not Corrupt:
        raise NotImplementedError(kind)
    damage = msgspec.convert(value, _Damage)
    place = {"queue": damage.queue, "first": damage.first, "last": damage.last}
    return Corrupt(damage.message, hint=damage.hint, **place)  # type: ignore[arg-type]  # it can't tell


_encode: Final = partial(msgspec.msgpack.encode, enc_hook=_shown)

VERBS: Final[Mapping[str, Verb]] = {name: Verb(name) for name in _VERBS}
"""By their names."""
