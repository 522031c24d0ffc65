"""Reading bodies and queries into forms, with errors that say where and what to do.

Invariants: a body is valid UTF-8 where it is JSON; no object of a form has a key twice; no field is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
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

    A body of `many` items is looked through for keys that come twice only where there are more of them than
    items: whatever is inside of payloads is nobody's business, but looks the same from outside.
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
        raise _explained(error, fields) from None
    except RecursionError:
        raise Rejected("the body is nested too deeply", hint="flatten it, or send payload_base64") from None
    if not many or _may_have_twice(body, value, fields):
        _refuse_twice(body)
    return value


def _may_have_twice(body: bytes, items: Sequence[Any], fields: Sequence[str]) -> bool:
    """Whether some item may have a key twice: surely not one that is as short as it can be."""
    if len(encode_json(items)) == len(body):
        return False
    return any(body.count(f'"{name}"'.encode()) > len(items) for name in fields)


def decode_msgpack(body: bytes, form: Any, fields: Sequence[str] = ()) -> Any:
    """Read a form from MessagePack."""
    try:
        return msgpack_decoder(form).decode(body)
    except msgspec.MsgspecError as error:
        raise _explained(error, fields) from None
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


def _explained(error: msgspec.MsgspecError, fields: Sequence[str]) -> Rejected:
    text = str(error)
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
    with suppress(ValueError, RecursionError):  # it is well-formed, as was found before
        _walk(json.loads(body, object_pairs_hook=_Pairs), "$")


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


def field_names(form: Any) -> list[str]:
    """The names that a form knows, at any depth: what to suggest the nearest of."""
    names: list[str] = []
    _collect(form, names, set())
    return names


def _collect(form: Any, names: list[str], seen: set[Any]) -> None:
    for part in (form, *getattr(form, "__args__", ())):
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in seen:
            seen.add(part)
            for field in msgspec.structs.fields(part):
                names.append(field.encode_name)
                _collect(field.type, names, seen)
        elif part is not form:
            _collect(part, names, seen)
