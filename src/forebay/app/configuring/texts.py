"""The text of a setting, both ways: one grammar for files, variables and flags.

A value is text that is read as its setting demands. So `yes` is a switch where a switch is expected and
a name where a name is, and a size is `32Mi` everywhere.
"""

import re
from typing import Any, Final

import msgspec

from forebay.app.configuring.faults import excerpt, nearest
from forebay.app.configuring.schema import Setting
from forebay.model import Rejected, format_bytes, format_seconds, parse_bytes, parse_seconds, redact
from forebay.model.redaction import HIDDEN

__all__ = ["bound_text", "parse", "shown"]

_SWITCH: Final = {
    "true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,19})?")
_NONE: Final = frozenset({"none", "null"})


def parse(setting: Setting, text: str) -> Any:
    """Read a value; Rejected says what is wrong with it, and shows no secret."""
    if setting.optional and text.lower() in _NONE:
        return None
    if setting.kind == "text":
        return _text(setting, text)
    if setting.kind in ("list", "mapping"):
        return _several(setting, text)
    if setting.kind == "choice":
        if text not in setting.choices:
            near = nearest(text.lower(), setting.choices)
            hint = f"did you mean {near}?" if near else f"use {_or(setting.choices)}"
            raise Rejected(f"{excerpt(text)} is none of {', '.join(setting.choices)}", hint=hint)
        return text
    if setting.kind == "switch":
        if text.lower() not in _SWITCH:
            raise Rejected(f"{excerpt(text)} is neither true nor false", hint="write true or false")
        return _SWITCH[text.lower()]
    return _within_bounds(setting, _quantity(setting, text))


def _text(setting: Setting, text: str) -> str:
    fits = setting.pattern is None or re.search(setting.pattern, text)
    if not fits or len(text) < (setting.length_min or 0) or "\0" in text:
        said = "what is given" if setting.is_secret else excerpt(text)
        raise Rejected(f"{said} is not {setting.meaning or 'such a text'}")
    return text


def _several(setting: Setting, text: str) -> tuple[str, ...] | dict[str, str]:
    try:
        if setting.kind == "list":
            return msgspec.json.decode(text, type=tuple[str, ...])
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        shape = '["one", "two"]' if setting.kind == "list" else '{"name": "value"}'
        raise Rejected(f"what is given is not a {setting.kind}", hint=f"write it as {shape}") from None


def _quantity(setting: Setting, text: str) -> int | float:
    if setting.kind in ("size", "duration"):
        try:
            return parse_bytes(text) if setting.kind == "size" else parse_seconds(text)
        except Rejected as error:
            # Its own text quotes the value as it is.
            raise Rejected(f"{excerpt(text)} is not a {setting.kind}", hint=error.hint) from None
    if setting.kind == "integer":
        if not _INTEGER.fullmatch(text):
            raise Rejected(f"{excerpt(text)} is not a whole number", hint="write it in digits, like 1000")
        return int(text)
    if not _NUMBER.fullmatch(text):
        raise Rejected(f"{excerpt(text)} is not a number", hint="write it in digits, like 1000 or 0.5")
    return float(text)


def _within_bounds(setting: Setting, value: float) -> int | float:
    least, most = setting.least, setting.most
    if least is not None and value < least:
        hint = f"give {bound_text(setting, least)} or more"
        raise Rejected(f"{shown(setting, value)} is too little", hint=hint)
    if most is not None and value > most:
        hint = f"give {bound_text(setting, most)} or less"
        raise Rejected(f"{shown(setting, value)} is too much", hint=hint)
    return value


def bound_text(setting: Setting, value: float) -> str:
    """Write the least or the most that a setting may be."""
    return shown(setting, int(value) if setting.kind in ("size", "integer") else value)


def shown(setting: Setting, value: Any) -> str:
    """Write a value so that `parse` reads it again, but without secrets."""
    if value is None:
        return "none"
    if setting.is_secret and value:
        return HIDDEN
    if setting.kind == "size":
        return format_bytes(value)
    if setting.kind == "duration":
        return format_seconds(value)
    if setting.kind in ("switch", "list", "mapping"):
        return msgspec.json.encode(value).decode()
    return redact(value) if isinstance(value, str) else f"{value:.15g}"


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
