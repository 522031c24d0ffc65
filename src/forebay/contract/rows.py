"""Rows as bytes: the values of a task in the order of its fields, by either codec.

Invariants: what `encode` takes, `decode` gives back, equal; values are checked before anything is written.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Any, Final, Protocol

import msgspec

from forebay.contract.checking import checker
from forebay.contract.errors import Undecodable, UnknownFormat
from forebay.contract.iproto import IprotoRows
from forebay.contract.kinds import KINDS
from forebay.contract.values import CODECS, Codec, Field
from forebay.model import Rejected

__all__ = ["MsgpackRows", "Rows", "decode", "encode", "rows_of", "written"]

_SAID: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?:\[(?P<index>\d+)\])?(?P<rest>.*)`)?", re.DOTALL)
_KEPT: Final = 1_000


class Rows(Protocol):
    """One codec for one list of fields."""

    def encode(self, values: Sequence[Any], /) -> bytes:
        """The bytes of a row whose values were checked."""
        ...

    def decode(self, data: bytes, /) -> tuple[Any, ...]:
        """The values of a row; `Undecodable` says which field isn't what it should be."""
        ...


class MsgpackRows:
    """The `msgpack` codec: an array with a value for each field."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        row = GenericAlias(tuple, tuple(KINDS[field.type].decoded for field in fields))
        self._decode: Callable[[bytes], tuple[Any, ...]] = msgspec.msgpack.Decoder[Any](row).decode
        self.encode: Callable[[Sequence[Any]], bytes] = msgspec.msgpack.Encoder().encode

    def decode(self, data: bytes, /) -> tuple[Any, ...]:
        """The values of a row."""
        try:
            return self._decode(data)
        except msgspec.ValidationError as error:
            raise Undecodable(_said(str(error), self._fields)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(f"not a row of MessagePack: {error}") from None


def rows_of(codec: str, fields: Sequence[Field]) -> Rows:
    """The codec of that name for these fields."""
    return _rows(codec, tuple(fields))


@lru_cache(_KEPT)
def _rows(codec: str, fields: tuple[Field, ...]) -> Rows:
    if codec not in CODECS:
        raise UnknownFormat(f"codec {codec[:64]!r} isn't known here", hint=f"known are {', '.join(CODECS)}")
    return IprotoRows(fields) if codec == "iproto" else MsgpackRows(fields)


def encode(codec: Codec, fields: Sequence[Field], values: Sequence[Any]) -> bytes:
    """The bytes of a row. `Rejected` says which value isn't what its field takes."""
    return written(rows_of(codec, fields), checker(tuple(fields))(values))


def decode(codec: Codec, fields: Sequence[Field], data: bytes) -> tuple[Any, ...]:
    """The values of exactly these fields, out of exactly these bytes; or else `Undecodable`."""
    return rows_of(codec, fields).decode(data)


def written(rows: Rows, values: tuple[Any, ...]) -> bytes:
    """The bytes of a row that was checked; text that is no Unicode is found only here."""
    try:
        return rows.encode(values)
    except UnicodeEncodeError as error:
        raise Rejected(
            f"a text has a lone surrogate at position {error.start}", hint="give text that UTF-8 can write"
        ) from None


def _said(text: str, fields: Sequence[Field]) -> str:
    """What msgspec says, with the name of the field in place of its index."""
    found = _SAID.fullmatch(text)
    assert found is not None
    what = found["what"][:1].lower() + found["what"][1:].replace("`", "")
    if found["index"] is None:
        return what
    field = fields[int(found["index"])]
    return f"field '{field.name}{found['rest']}' ({field.type}): {what}"
