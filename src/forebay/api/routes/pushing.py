"""Pushing: messages as a JSON array, as a stream of lines, as MessagePack, or as a whole encoded block.

Invariants: what is answered 201 is durable, in the log or in the spool; what is answered 202 is in memory,
since its caller asked for no more; a push is written whole or not at all, but for a stream, which is written
in blocks as it comes and says how far it came; a push with the same Idempotency-Key is the same push.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal

import msgspec
from msgspec import UNSET

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.decoding import decode_json, decode_msgpack
from forebay.api.routing import Route
from forebay.api.tracing import trace_headers, traced
from forebay.log.values import Appended, Where
from forebay.model import (
    Block,
    Corrupt,
    ForebayError,
    Message,
    Rejected,
    TooLarge,
    decode,
    format_bytes,
    format_id,
    mint,
    parse_id,
    restamp,
    whole,
)
from forebay.wire.forms import (
    Form,
    Item,
    PlainItem,
    Push,
    PushReceipt,
    Seconds,
    StreamBlock,
    StreamReceipt,
    pushed_forms,
)
from forebay.wire.media import BLOCK, JSON, MSGPACK, MSGPACK_NAMES, NDJSON, NDJSON_NAMES, WAITED

KEY_CHARACTERS_MAX: Final = 255
LINE_BLOCK_MESSAGES: Final = 1_000
"""Lines of a stream that are written together; part of what makes a repeated stream the same."""
LINE_BLOCK_BYTES: Final = 4 << 20
_FIELDS: Final = tuple(Item.__struct_fields__)
_MESSAGE_FIELDS: Final = tuple(Message.__struct_fields__)
_SECOND: Final = 1_000_000
_SKEW_US: Final = 1_000_000
"""How far a client's clock may be from ours before its time is not taken for the time of a push."""
_WAITED_SECONDS_MAX: Final = 1e10
_plain: Final = msgspec.json.Decoder(list[PlainItem])
_WORST: Final[Sequence[Where]] = ("log", "spool", "buffered")
"""Where messages are, the safest place first."""
_AROUND: Final = len("[]") - len(",")
_AROUND_EACH: Final = len('{"payload":},')


class PushQuery(Form, kw_only=True):
    """What holds for all messages of a push."""

    delay_seconds: Seconds | None = None
    """Not handed out before so long has passed, by the server's clock."""
    qos: Literal[0, 1] = 1
    """1: answered when it is on disk. 0: answered at once, and written a moment later with others; a crash in
    between loses it."""


_ASKS_NOTHING: Final = PushQuery()


async def push(call: Call) -> Answer:
    """Push messages, all or none of them."""
    media = call.media
    query = call.query(PushQuery) if call.scope["query_string"] else _ASKS_NOTHING
    if not query.qos:
        _check_buffered(call)
    if media in NDJSON_NAMES:
        return await _push_lines(call)
    key, waited = _key(call), _waited(call)
    body = await call.body()
    encoded, delay = None, query.delay_seconds
    now = call.context.clock.now()
    accepted_at = max(0, now - (waited or 0))
    if media == BLOCK:
        if delay is not None:
            raise Rejected("a block says itself when its messages begin", hint="leave out delay_seconds")
        block, encoded = _stamped(_read_block(body), body, accepted_at)
        if key is not None and _id_for(call, key) != block.id:
            raise Rejected("the Idempotency-Key is not the block's id", hint="leave it out: the id is enough")
    else:
        messages = traced(_read_messages(call, media, body, now), trace_headers(call))
        if delay is not None:
            begins = now + round(delay * _SECOND)
            messages = [msgspec.structs.replace(m, start_time=begins) for m in map(whole, messages)]
        if not query.qos:
            return _buffer(call, messages)
        merger = call.context.merger
        if key is None and waited is None and merger.takes(messages, len(body)):
            id, appended = await merger.put(call.params["queue"], messages, len(body))
            call.context.counters.pushed(appended)
            return Answer(Push(id, appended.where, appended), _receipt, status=201)
        block = Block.of(messages, id=None if key is None else _id_for(call, key), created_at=accepted_at)
    appended = await append(call, block, encoded, replayed=waited is not None)
    return Answer(Push(block.id, appended.where, appended), _receipt, status=201)


def _receipt(push: Push) -> PushReceipt:
    return PushReceipt(
        block=None if push.block is None else format_id(push.block),
        durable=push.durable,
        repeated=push.appended.known,
        results=pushed_forms(push.appended),
    )


async def append(call: Call, block: Block, body: bytes | None = None, *, replayed: bool = False) -> Appended:
    """Write a block to the queue of the call."""
    appended = await call.context.append(call.params["queue"], block, body, replayed=replayed)
    call.context.counters.pushed(appended)
    return appended


# Pushes that are answered before they are safe


def _check_buffered(call: Call) -> None:
    """Refuse qos=0 where it can't be had, or where its caller wants something else as well."""
    if _waited(call) is not None:
        raise Rejected(f"a push with {WAITED} waited in a spool, which qos=0 doesn't", hint="leave one out")
    if call.context.failover is None:
        raise Rejected("qos=0 needs a spool, and this server has none", hint="leave it out")
    if call.header(b"idempotency-key") is not None:
        text = "a push with qos=0 is mixed with others, so it can't be repeated by an Idempotency-Key"
        raise Rejected(text, hint="leave one of them out")
    if call.media == BLOCK or call.media in NDJSON_NAMES:
        text = f"qos=0 is for messages in an array, and the body is {call.media}"
        raise Rejected(text, hint="leave it out: a block or a stream gains nothing by it")


def _buffer(call: Call, messages: Sequence[Message | bytes]) -> Answer:
    failover = call.context.failover
    assert failover is not None, "it was looked at before"
    appended = failover.buffer(call.params["queue"], list(map(whole, messages)))
    call.context.counters.pushed(appended)
    return Answer(Push(None, appended.where, appended), _receipt, status=202)


# Bodies


def _read_messages(call: Call, media: str, body: bytes, now: int) -> Sequence[Message | bytes]:
    """The messages of a body that is an array of them."""
    messages: Sequence[Message | bytes]
    if media == JSON:
        messages = _payloads(body) or _messages(decode_json(body, list[Item], _FIELDS, many=True), now)
    elif media in MSGPACK_NAMES:
        messages = decode_msgpack(body, list[Message], _MESSAGE_FIELDS)
    else:
        raise call.unsupported()
    if not messages:
        raise Rejected("there is no message to push", hint="send an array of one or more")
    return messages


def _read_block(body: bytes) -> Block:
    try:
        return decode(body)
    except Corrupt as error:
        raise Rejected(f"the body is no block: {error.message}", hint="see docs: the block format") from None


def _payloads(body: bytes) -> list[bytes]:
    """The payloads of a body that is written as short as it can be, if its messages have nothing else."""
    try:
        if not body.isascii():
            body.decode()
        items = _plain.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []  # what is wrong, if anything, is said by whoever reads it in full
    payloads = [bytes(item.payload) for item in items]
    # A key that comes twice, or a space, would make it longer than it must be.
    if len(body) != _AROUND + _AROUND_EACH * len(payloads) + sum(map(len, payloads)):
        return []
    return payloads


def _messages(items: Sequence[Item], now: int) -> list[Message]:
    return [_message(item, f"$[{i}]", now) for i, item in enumerate(items)]


def _message(item: Item, path: str, now: int) -> Message:
    """A message out of a form whose fields may contradict each other."""
    if item.payload is not UNSET and item.payload_base64 is not UNSET:
        raise Rejected(f"both payload and payload_base64 are given - at `{path}`", hint="give one of them")
    if item.start_time is not None and item.delay_seconds is not None:
        raise Rejected(f"both start_time and delay_seconds are given - at `{path}`", hint="give one of them")
    start_time = item.start_time
    if item.delay_seconds is not None:
        start_time = now + round(item.delay_seconds * _SECOND)
    return Message(_payload(item, path), item.partition, item.transaction_id, item.headers, start_time)


def _payload(item: Item, path: str) -> bytes:
    if item.payload is not UNSET:
        return bytes(item.payload)
    if item.payload_base64 is UNSET:
        raise Rejected(f"there is no payload - at `{path}`", hint="give payload (JSON) or payload_base64")
    try:
        return b64decode(item.payload_base64, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(f"this is no base64 - at `{path}.payload_base64`", hint="see RFC 4648") from None


# When a push was accepted


def _waited(call: Call) -> int | None:
    """How many microseconds a push has waited in the spool of its caller; None where it hasn't."""
    text = call.header(WAITED.lower().encode())
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _WAITED_SECONDS_MAX:
        raise Rejected(f"{WAITED} is {text[:32]!r}", hint="give a number of seconds, as 5400.25")
    return round(seconds * _SECOND)


def _stamped(block: Block, body: bytes, accepted_at: int) -> tuple[Block, bytes]:
    """A block, and its body, that were made when the push was accepted, by the clock of this server."""
    if abs(block.created_at - accepted_at) <= _SKEW_US:
        return block, body
    return msgspec.structs.replace(block, created_at=accepted_at), restamp(body, accepted_at)


# Ids of pushes


def _key(call: Call) -> str | None:
    key = call.header(b"idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        text = f"the Idempotency-Key has {len(key)} characters"
        raise Rejected(text, hint=f"give 1 to {KEY_CHARACTERS_MAX}, best a UUID")
    return key


def _id_for(call: Call, key: str, part: int = 0) -> bytes:
    """The block id of a push with this key: the UUID that it is, or one made of it and the queue."""
    if not part:
        try:
            return parse_id(key)
        except Rejected:
            pass
    text = f"{call.params['queue']}\0{part}\0{key}"
    made = bytearray(sha256(text.encode("utf-8", "surrogateescape")).digest()[:16])
    made[6] = made[6] & 0x0F | 0x80  # version 8 of RFC 9562: made by our own rule
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


# Streams


class _Stream:
    """Lines on their way into blocks."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._key = _key(call)
        self._headers = trace_headers(call)
        self._waited = _waited(call)
        self._messages: list[Message] = []
        self._bytes = 0
        self._line = 0
        self.blocks: list[StreamBlock] = []
        self.durable: Where = "log"
        self.accepted = 0
        self.duplicates = 0

    async def line(self, line: bytes) -> None:
        self._line += 1
        if not line.strip():
            return
        try:
            item = decode_json(line, Item, _FIELDS, many=True)
            self._messages.append(_message(item, "$", self._call.context.clock.now()))
        except Rejected as error:
            error.message = f"line {self._line}: {error.message}"
            raise
        self._bytes += len(line)
        if len(self._messages) >= LINE_BLOCK_MESSAGES or self._bytes >= LINE_BLOCK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if not self._messages:
            return
        id = mint() if self._key is None else _id_for(self._call, self._key, len(self.blocks) + 1)
        accepted_at = max(0, self._call.context.clock.now() - (self._waited or 0))
        block = Block.of(traced(self._messages, self._headers), id=id, created_at=accepted_at)
        try:
            appended = await append(self._call, block, replayed=self._waited is not None)
        except ForebayError as error:
            error.message = f"{error.message} - in the {len(block)} messages up to line {self._line}"
            raise
        self._messages, self._bytes = [], 0
        self.accepted += appended.count
        self._call.accepted = self.accepted
        self.duplicates += len(appended.duplicates)
        self.durable = max(self.durable, appended.where, key=_WORST.index)
        self.blocks.append(
            StreamBlock(
                block=format_id(block.id),
                first=str(appended.first) if appended.where == "log" else None,
                count=appended.count,
                duplicates=len(appended.duplicates),
            )
        )


async def _push_lines(call: Call) -> Answer:
    stream, rest = _Stream(call), b""
    call.accepted = 0
    limit = call.context.limits.message_bytes_max * 2 + (64 << 10)
    async for piece in call.stream():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            await stream.line(line)
        if len(rest) > limit:
            raise TooLarge(f"a line is over {format_bytes(limit)}", hint="end lines with a newline")
    await stream.line(rest)
    await stream.flush()
    return Answer(
        StreamReceipt(
            durable=stream.durable,
            accepted=stream.accepted,
            duplicates=stream.duplicates,
            blocks=stream.blocks,
        ),
        status=201,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/v1/queues/{queue}/messages",
        push,
        "Push messages",
        {201: PushReceipt | StreamReceipt, 202: PushReceipt},
        scope="push",
        query=PushQuery,
        body=list[Item],
        media=(JSON, NDJSON, MSGPACK, BLOCK),
        problems=(404, 409, 413, 415, 507),
        headers={
            "Idempotency-Key": "Makes the push repeatable: a UUID, or any text of up to 255 characters",
            WAITED: "How long the push has waited in a spool, in seconds: it counts as accepted then",
            "traceparent": "Carried in the messages' headers (W3C Trace Context)",
        },
        tag="Messages",
    ),
)
