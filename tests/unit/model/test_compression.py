"""Compression that never makes a body longer, and expansion that never overruns."""

import contextlib
import os

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Compression, Corrupt
from forebay.model.compression import compress, expand

REAL = [Compression.LZ4, Compression.ZSTD, Compression.SNAPPY]
TEXT = b"the same again " * 100


@given(st.binary(max_size=2000) | st.binary(max_size=20).map(lambda b: b * 100))
@pytest.mark.parametrize("compression", Compression)
def test_bodies_come_back(compression: Compression, body: bytes) -> None:
    done, stored = compress(body, compression)
    assert done in (compression, Compression.NONE)
    assert len(stored) <= len(body)
    assert bytes(expand(stored, done, len(body))) == body


@pytest.mark.parametrize("compression", REAL)
def test_what_does_not_shrink_or_is_small_is_stored_as_it_is(compression: Compression) -> None:
    for body in (os.urandom(4000), b"a" * 255):
        assert compress(body, compression) == (Compression.NONE, body)
    assert compress(b"a" * 256, compression)[0] is compression


@pytest.mark.parametrize("compression", REAL)
@pytest.mark.parametrize("length", [0, 1, len(TEXT) - 1, len(TEXT) + 1])
def test_a_wrong_length_is_corrupt(compression: Compression, length: int) -> None:
    _, stored = compress(TEXT, compression)
    with pytest.raises(Corrupt, match="decompress"):
        expand(stored, compression, length)


def test_a_bomb_does_not_go_off() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(50_000_000), level=1))
    with pytest.raises(Corrupt, match="decompress"):
        expand(bomb, Compression.ZSTD, 1000)


@given(st.binary(max_size=300), st.integers(0, 2000))
@pytest.mark.parametrize("compression", REAL)
def test_noise_expands_to_the_length_or_is_corrupt(
    compression: Compression, noise: bytes, length: int
) -> None:
    with contextlib.suppress(Corrupt):
        assert len(expand(noise, compression, length)) == length
