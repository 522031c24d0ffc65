"""The bytes of an entry: a request as a msgpack array, and behind it the id of one that was redriven.

::

    94  method  target  headers  body            a request as it came; its sequence number is its id
    95  method  target  headers  body  id        a dead letter that was redriven, under the id that it had
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from forebay.deliver.values import Headers, Request

__all__ = ["decode_request", "encode_request", "id_of", "redriven_data"]

encode_request: Final[Callable[[Request], bytes]] = msgspec.msgpack.Encoder().encode
decode_request: Final[Callable[[bytes], Request]] = msgspec.msgpack.Decoder(Request).decode
_REDRIVEN_BYTE: Final = 0x95


class _Redriven(msgspec.Struct, frozen=True, gc=False, array_like=True):
    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    id: str


_DECODER: Final = msgspec.msgpack.Decoder(_Redriven)


def id_of(sequence: int, data: bytes) -> str:
    """The id of an entry, the same in all its attempts and over redrives."""
    if data[:1] and data[0] == _REDRIVEN_BYTE:
        try:
            return _DECODER.decode(data).id
        except msgspec.MsgspecError:  # bytes of a stranger, which are buried
            pass
    return str(sequence)


def redriven_data(data: bytes, id: str) -> bytes:
    """The bytes of an entry that is to keep an id; bytes that aren't a request stay as they are."""
    try:
        request = decode_request(data)
    except msgspec.MsgspecError:
        return data
    return msgspec.msgpack.encode(
        _Redriven(request.method, request.target, request.headers, request.body, id)
    )
