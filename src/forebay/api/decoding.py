"""Reading bodies and queries into forms, with errors that say where and what to do.

Invariants: a body is valid UTF-8 where it is JSON; no object of a form has a key twice; no field is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from forebay.api.answers import encode_json
from forebay.model import Rejected

T = TypeVar("T")

_UNKNOWN: Final = re.compile(r"unknown field `(.+?)`")
_QUERY_MAX: Final = 100
_ESCAPED: Final = re.compile(rb"\\u00(?:3[0-9]|5[fF]|[67][0-9a-fA-F])")
"""A character that names of fields are made of, but written as an escape, as hardly anybody does."""
_RAW: Final = frozenset({"payload"})
"""Fields whose value is nobody's business: it may be as it likes."""


@cache
def json_decoder(form: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a form."""
    return msgspec.json.Decoder(form)


@cache
def msgpack_decoder(form: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a form."""
    return msgspec.msgpack.Decoder(form)


def decode_json(body: bytes, form: Any, fields: Sequence[str] = (), *, many: bool = False) -> Any:
    """Read a form from JSON. `fields` are the names that it knows, to suggest the nearest.

    A body of `many` items (or one of many, a line) is looked through for keys that come twice only where it
    may have them, which is found by counting: what is inside of payloads is nobody's business, and costs
    nothing.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            text = f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}"
            raise Rejected(text, hint="encode it as UTF-8, or send payload_base64") from None
    try:
        value = json_decoder(form).decode(body)
    except msgspec.MsgspecError as error:
        raise _explained(error, fields, len(body)) from None
    except RecursionError:
        raise _too_deep() from None
    # Surely no key comes twice in a body that is as it would be written.
    if encode_json(value) != body and (not many or _may_have_twice(body, value, fields)):
        _refuse_twice(body)
    return value


def _may_have_twice(body: bytes, value: Any, fields: Sequence[str]) -> bool:
    """Whether some item may have a key twice."""
    items = value if isinstance(value, list) else (value,)
    count = body.count
    if any(count(name) > len(items) for name in _quoted(tuple(fields))):
        return True
    if b"\\u00" in body and _ESCAPED.search(body):
        return True
    return any(item.headers for item in items) and _headers_twice(body, many=isinstance(value, list))


def _headers_twice(body: bytes, *, many: bool) -> bool:
    """Whether the headers of some item have a name twice; they are mostly the same ones again and again."""
    found = json_decoder(list[_Headers] if many else _Headers).decode(body)
    distinct = {bytes(item.headers) for item in (found if many else (found,))}
    return any(_has_twice(raw) for raw in distinct)


class _Headers(msgspec.Struct):
    """The headers of an item as they were written."""

    headers: msgspec.Raw = msgspec.Raw(b"null")


def _has_twice(raw: bytes) -> bool:
    pairs = json.loads(raw, object_pairs_hook=_Pairs)
    return pairs is not None and len({name for name, _ in pairs}) < len(pairs)


@cache
def _quoted(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(f'"{name}"'.encode() for name in names)


def decode_msgpack(body: bytes, form: Any, fields: Sequence[str] = ()) -> Any:
    """Read a form from MessagePack."""
    try:
        return msgpack_decoder(form).decode(body)
    except msgspec.MsgspecError as error:
        raise _explained(error, fields, len(body)) from None
    except UnicodeDecodeError:
        raise Rejected("a text in the body is not UTF-8", hint="encode texts as UTF-8") from None
    except RecursionError:
        raise Rejected("the body is nested too deeply", hint="flatten it") from None


def decode_query(query: bytes, form: type[T]) -> T:
    """Read the query of a request."""
    known = [str(name) for name in form.__struct_fields__]  # type: ignore[attr-defined]
    try:
        pairs = parse_qsl(
            query.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=_QUERY_MAX
        ) if query else []  # fmt: skip
    except (ValueError, UnicodeDecodeError):
        raise Rejected("the query cannot be read", hint="write it like ?count=10&group=workers") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise Rejected(f"{name} is in the query twice", hint="give it once")
        if name not in known:
            raise Rejected(f"there is no parameter {name[:64]!r}", hint=_nearest(name, known))
        values[name] = value
    try:
        return msgspec.convert(values, form, strict=False)
    except msgspec.ValidationError as error:
        raise _explained(error, known) from None


def _explained(error: msgspec.MsgspecError, fields: Sequence[str], size: int | None = None) -> Rejected:
    text = str(error)
    if size is not None and text == "Input data was truncated":
        text = f"the body ends too early (byte {size})"
    unknown = _UNKNOWN.search(text)
    hint = "correct it and send it again"
    if unknown:
        hint = _nearest(unknown[1], fields)
    elif not isinstance(error, msgspec.ValidationError):
        hint = "the body must be what its Content-Type says"
    return Rejected(text[:1].lower() + text[1:] if text[1:2].islower() else text, hint=hint)


def _nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are: {', '.join(known)}" if known else "leave it out"


def _refuse_twice(body: bytes) -> None:
    """Refuse an object with a key that comes twice, but for those inside of payloads."""
    try:
        _walk(json.loads(body, object_pairs_hook=_Pairs, parse_int=len, parse_float=len), "$")
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> Rejected:
    return Rejected("the body is nested too deeply", hint="flatten it, or send payload_base64")


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _walk(value: Any, path: str) -> None:
    if isinstance(value, _Pairs):
        seen = set[str]()
        for name, item in value:
            if name in seen:
                raise Rejected(f"{name!r} is there twice - at `{path}`", hint="give each field once")
            seen.add(name)
            if name not in _RAW:
                _walk(item, f"{path}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _walk(item, f"{path}[{i}]")


@cache
def field_names(form: Any) -> tuple[str, ...]:
    """The names that a form knows, at any depth: what to suggest the nearest of."""
    names: list[str] = []
    _collect(form, names, set())
    return tuple(names)


def _collect(form: Any, names: list[str], seen: set[Any]) -> None:
    for part in (form, *getattr(form, "__args__", ())):
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in seen:
            seen.add(part)
            for field in msgspec.structs.fields(part):
                names.append(field.encode_name)
                _collect(field.type, names, seen)
        elif part is not form:
            _collect(part, names, seen)
