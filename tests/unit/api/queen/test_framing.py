"""Binary bodies: what a client wrote is read, and what is broken is refused."""

from __future__ import annotations

import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.queen.framing import Framed, framed_push, framed_transaction, is_framed
from forebay.model import ForebayError, Rejected, TooLarge
from tests.queen.packages import package

_LIMIT = 1 << 20


def _encoders() -> object:
    package("2.6.0")
    from queen_2_6_0.http import push_binary  # type: ignore[import-not-found]  # noqa: PLC0415 - it is put there by the line before

    return push_binary


def _batches(encoders: object) -> list[object]:
    batch = encoders.PushBatch  # type: ignore[attr-defined]
    return [
        batch("q/ü", "a", [b"1", b'{"x":[]}'], ["t1", ""]),
        batch("q/ü", "b", [b"null"], None),
        batch("other", "", [], None),
    ]


def _push(body: bytes, bytes_max: int = _LIMIT, items_max: int = 100) -> Framed:
    return framed_push(body, bytes_max=bytes_max, items_max=items_max)


@pytest.mark.parametrize("compress", [False, True])
def test_what_the_client_encodes_is_read(compress: bool) -> None:  # noqa: FBT001 - a parameter of the test
    encoders = _encoders()
    body = encoders.encode_push_binary(_batches(encoders), compress=compress, counts=True)  # type: ignore[attr-defined]
    found = _push(body)
    assert found.counts is True
    assert [(i.queue, i.partition, i.data(), i.transaction_id) for i in found.items] == [
        ("q/ü", "a", b"1", "t1"),
        ("q/ü", "a", b'{"x":[]}', None),
        ("q/ü", "b", b"null", None),
    ]


def test_frames_are_read_in_pushes_and_transactions() -> None:
    encoders = _encoders()
    pushed = _push(encoders.encode_push_frames(_batches(encoders)))  # type: ignore[attr-defined]
    assert [item.data() for item in pushed.items] == [b"1", b'{"x":[]}', b"null"]
    assert pushed.items[0].transaction_id == "t1"
    assert len(pushed.items[1].transaction_id or "") == 36
    body = encoders.encode_transaction_frames(b'{"operations":[]}', _batches(encoders))  # type: ignore[attr-defined]
    assert is_framed(body)
    found = framed_transaction(body, bytes_max=_LIMIT, items_max=100)
    assert (found.head, [item.data() for item in found.items]) == (
        b'{"operations":[]}',
        [b"1", b'{"x":[]}', b"null"],
    )


def test_what_becomes_too_large_is_not_unpacked() -> None:
    large = zstandard.compress(b"x" * (8 << 20))
    with pytest.raises(TooLarge):
        _push(b"QPB1\x01" + struct.pack("<I", 8 << 20) + large)


@pytest.mark.parametrize(
    "body",
    [
        b"QPB1",
        b"QPB1\x40",
        b"QPB1\x00\x01\x00\x00\x00",
        b"QPB1\x01\x05\x00\x00\x00nope",
        b"QPB1\x01\x05\x00\x00\x00" + zstandard.compress(b"\0\0\0\0"),
        b"QPB1\x00\x00\x00\x00\x00more",
        b"QPB1\x00" + struct.pack("<IH1sH1sII4s", 1, 1, b"q", 1, b"p", 1, 4, b"nope"),
        b"QPB1\x00" + struct.pack("<IH1sH1sI", 1, 1, b"\xff", 1, b"p", 0),
        b"QPB1\x00" + struct.pack("<IH1sH1sI", 1, 1, b"q", 1, b"p", 101),
    ],
)
def test_what_is_broken_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected):
        _push(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read, magic in ((framed_push, b"QPB1"), (framed_transaction, b"QTB1")):
        try:
            read(magic + data, bytes_max=_LIMIT, items_max=100)
        except ForebayError as error:
            assert error.message  # noqa: PT017 - both are right
