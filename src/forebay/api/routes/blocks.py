"""Whole blocks, for programs that move many messages at once: read by range; stage, then publish.

Invariants: a key that is for some queues is for the stages whose names begin like theirs, so that nobody
publishes what somebody else has staged.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.log.values import Append, Receipt, StoredBlock
from forebay.model import Block, Corrupt, Rejected, decode, format_id, parse_id, sequence_of
from forebay.wire.forms import (
    BlocksPage,
    Form,
    Published,
    PublishForm,
    Staged,
    StagedBlock,
    StageForm,
    appended_form,
    block_form,
)


class BlocksQuery(Form, kw_only=True):
    """Which blocks: from the one that holds sequence number `first` on."""

    first: Annotated[int, Meta(ge=1, lt=1 << 45)] = 1
    messages_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    bytes_max: Annotated[int, Meta(ge=1, le=64 << 20)] = 16 << 20


async def read(call: Call) -> Answer:
    """Stored blocks by range."""
    query = call.query(BlocksQuery)
    found = await call.context.store.read(
        call.params["queue"], query.first, messages_max=query.messages_max, bytes_max=query.bytes_max
    )

    def form(found: Sequence[StoredBlock]) -> BlocksPage:
        following = sequence_of(found[-1].last) + 1 if found else None
        return BlocksPage(blocks=[block_form(block) for block in found], next=following)

    return Answer(found, form)


async def stage(call: Call) -> Answer:
    """Keep blocks under a name, unseen."""
    form: StageForm = await call.form()
    call.allow(call.params["stage"])
    store = call.context.store
    appends = []
    for i, piece in enumerate(form.blocks):
        call.allow(piece.queue)
        body = _body(piece, i)
        appends.append(Append((await store.queue(piece.queue)).number, _block(body, i), body))
    await store.stage(call.params["stage"], appends)
    return Answer(Staged(ids=[format_id(append.block.id) for append in appends]))


async def publish(call: Call) -> Answer:
    """Append staged blocks, all at once."""
    call.allow(call.params["stage"])
    form: PublishForm = await call.form()
    receipt = await call.context.store.publish(call.params["stage"], [parse_id(id) for id in form.ids])
    return Answer(receipt, _published)


def _published(receipt: Receipt) -> Published:
    return Published(appended=[appended_form(appended) for appended in receipt.appended])


def _body(piece: StagedBlock, index: int) -> bytes:
    path = f"$.blocks[{index}]"
    if (piece.body is UNSET) == (piece.body_base64 is UNSET):
        raise Rejected(f"a block has one of body and body_base64 - at `{path}`", hint="give one of them")
    if piece.body is not UNSET:
        return piece.body
    assert not isinstance(piece.body_base64, msgspec.UnsetType)
    try:
        return b64decode(piece.body_base64, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(f"this is no base64 - at `{path}.body_base64`", hint="see RFC 4648") from None


def _block(body: bytes, index: int) -> Block:
    try:
        return decode(body)
    except Corrupt as error:
        text = f"this is no block: {error.message} - at `$.blocks[{index}]`"
        raise Rejected(text, hint="see docs: the block format") from None


_TAG: Final = "Blocks"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/queues/{queue}/blocks",
        read,
        "Read blocks as they are stored",
        {200: BlocksPage},
        scope="read",
        query=BlocksQuery,
        problems=(404,),
        bulk=True,
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/stages/{stage}",
        stage,
        "Keep blocks under a name, unseen, until they are published",
        {200: Staged},
        scope="push",
        checks_queues=True,
        body=StageForm,
        problems=(404, 409, 413, 415),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/stages/{stage}/publish",
        publish,
        "Append staged blocks in this order, all at once",
        {200: Published},
        scope="push",
        checks_queues=True,
        body=PublishForm,
        problems=(404, 409, 413, 415),
        tag=_TAG,
    ),
)
