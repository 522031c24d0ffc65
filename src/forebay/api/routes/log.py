"""The log behind the server, verb by verb: for programs that keep their own place in it, such as Spark.

Invariants: only a key for everything may use it, since a verb may be about any queue; what one answer holds
is bounded, whatever room is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import NoRoute, Route
from forebay.log.values import Room
from forebay.wire.log import LONG_SECONDS, VERBS, Verb, encode_answer
from forebay.wire.media import JSON, MSGPACK

ANSWER_BYTES_MAX: Final = 64 << 20
"""What reading or claiming brings at most, but for one block that is larger."""
_READS: Final = frozenset({"read", "dead_letters", "outcomes"})
"""Verbs that change nothing and bring messages; records wait for no messages, since others go by them."""


async def ask(call: Call) -> Answer:
    """Let the log do it."""
    verb = _verb(call.params["verb"])
    arguments = _bounded(verb.received(await call.form(verb.form)))
    if verb.is_long:
        call.wait_longer(LONG_SECONDS)
    if verb.name in _READS:
        async with call.reading():
            body = await _done(call, verb, arguments)
        call.claim_room(len(body))
    else:
        if verb.name == "claim":
            call.check_room()
        body = await _done(call, verb, arguments)
    return Answer(body, media=MSGPACK if call.packed else JSON)


async def _done(call: Call, verb: Verb, arguments: Mapping[str, Any]) -> bytes:
    value = await getattr(call.context.desk.store.log, verb.name)(**arguments)
    return encode_answer(value, packed=call.packed)


def _verb(name: str) -> Verb:
    verb = VERBS.get(name)
    if verb is None:
        near = get_close_matches(name[:64], VERBS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VERBS)}"
        raise NoRoute(f"a log has no verb {name[:64]!r}", hint=hint)
    return verb


def _bounded(arguments: dict[str, Any]) -> dict[str, Any]:
    if isinstance(arguments.get("bytes"), int):
        arguments["bytes"] = min(arguments["bytes"], ANSWER_BYTES_MAX)
    if isinstance(room := arguments.get("room"), Room):
        arguments["room"] = msgspec.structs.replace(room, bytes=min(room.bytes, ANSWER_BYTES_MAX))
    return arguments


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/v1/log/{verb}",
        ask,
        "Have the log do one of its verbs: arguments by name, in MessagePack or JSON",
        {200: Any},
        scope="admin",
        body=Mapping[str, Any],
        problems=(404, 409, 413, 415, 507),
        waits=True,
        tag="Log",
    ),
)
