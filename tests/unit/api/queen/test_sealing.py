"""What is sealed can be opened with its key and in no other way, also after the keys were changed."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.queen import sealing
from forebay.api.queen.sealing import OVERHEAD_BYTES, Seal, read_seal
from forebay.api.queen.settings import QueenSettings
from forebay.model import Corrupt, Misconfigured, Unavailable

OLD: Final = bytes(range(32))
NEW: Final = bytes(range(32, 64))
GOLDEN: Final = "01135cbee9a6db705252cdd07229e90c360c98f68dbf9a9228a47f34325db728324c8adc079025f4ee"


@given(st.binary(max_size=2_000))
def test_what_was_sealed_is_opened(payload: bytes) -> None:
    seal = Seal([NEW])
    sealed = seal.seal(payload)
    assert seal.open(sealed) == payload
    assert len(sealed) == len(payload) + OVERHEAD_BYTES


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_batches_are_as_one_by_one(payloads: list[bytes]) -> None:
    seal = Seal([NEW])
    sealed = seal.seal_batch(payloads)
    assert seal.open_batch(sealed) == payloads
    assert [seal.open(one) for one in sealed] == payloads
    assert seal.open_batch([seal.seal(payload) for payload in payloads]) == payloads


def test_the_same_payload_is_never_sealed_the_same() -> None:
    seal = Seal([NEW])
    assert len({*seal.seal_batch([b"x"] * 500), *(seal.seal(b"x") for _ in range(500))}) == 1_000


def test_the_payload_cannot_be_seen() -> None:
    assert b"a payload" not in Seal([NEW]).seal(b"a payload" * 5)


def test_the_bytes_are_those_of_the_first_version() -> None:
    """What was sealed once must be opened for ever."""
    sealed = bytes.fromhex(GOLDEN)
    assert sealed[0] == 1
    assert Seal([OLD]).open(sealed) == b'{"a": 1}'


def test_the_first_key_seals_and_all_of_them_open() -> None:
    before, during, after = Seal([OLD]), Seal([NEW, OLD]), Seal([NEW])
    old, new = before.seal(b"x"), during.seal(b"y")
    assert during.open_batch([old, new]) == [b"x", b"y"]
    assert after.open(new) == b"y"
    with pytest.raises(Unavailable, match=f"under the key {old[1:5].hex()}, which the server doesn't have"):
        after.open(old)
    assert OLD.hex() not in old.hex()


def test_one_that_cannot_be_opened_keeps_no_other_closed() -> None:
    seal = Seal([NEW])
    good, gone = seal.seal(b"x"), Seal([OLD]).seal(b"y")
    first, second, third, last = seal.open_batch([good, gone, b"{}", good])
    assert first == last == b"x"
    assert isinstance(second, Unavailable)
    assert isinstance(third, Corrupt)


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    seal = Seal([NEW, OLD])
    sealed = bytearray(seal.seal(b"payload"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Corrupt, Unavailable)):
        seal.open(bytes(sealed))


@given(st.binary(max_size=80))
def test_bytes_that_were_never_sealed_are_corrupt_or_of_another_key(data: bytes) -> None:
    with pytest.raises((Corrupt, Unavailable)):
        Seal([NEW]).open(data)


@pytest.mark.parametrize("length", [0, 1, 5, 17, OVERHEAD_BYTES - 1])
def test_a_torn_payload_is_corrupt(length: int) -> None:
    seal = Seal([NEW])
    with pytest.raises(Corrupt):
        seal.open(seal.seal(b"x" * 50)[:length])


def test_two_keys_of_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_head_of", lambda _: b"12345")
    with pytest.raises(Misconfigured, match="the same id"):
        Seal([OLD, NEW])


# Keys out of settings


def test_keys_come_from_a_file_and_a_setting_in_this_order(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"\n{NEW.hex()}\r\n  {NEW.hex().upper()}  \n\n")
    seal = read_seal(QueenSettings(encryption_keys_file=str(file), encryption_key=OLD.hex()))
    assert seal is not None
    assert len(seal) == 2
    assert Seal([NEW]).open(seal.seal(b"x")) == b"x"
    assert seal.open(Seal([OLD]).seal(b"y")) == b"y"
    assert read_seal(QueenSettings()) is None


@pytest.mark.parametrize("text", ["", "\n\n", "abc", NEW.hex() + "0", NEW.hex() + "\n" + "zz" * 32, "é" * 64])
def test_a_file_of_keys_that_is_wrong_is_an_error_without_its_contents(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        read_seal(QueenSettings(encryption_keys_file=str(file)))
    assert caught.value.key == "encryption_keys_file"
    assert all(line not in str(caught.value) for line in text.split())


def test_a_file_of_keys_has_a_length(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("".join(f"{number:064x}\n" for number in range(101)))
    with pytest.raises(Misconfigured, match="101 keys"):
        read_seal(QueenSettings(encryption_keys_file=str(tmp_path / "keys")))
    with pytest.raises(Misconfigured, match="can't be read"):
        read_seal(QueenSettings(encryption_keys_file=str(tmp_path / "missing")))
