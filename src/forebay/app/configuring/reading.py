"""From texts to one validated value: the last source that speaks of a setting decides."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from forebay.app.configuring.faults import Fault, Given, misconfigured, nearest
from forebay.app.configuring.schema import DELIVERY, SERVER, Schema, Setting
from forebay.app.configuring.sources import (
    entries_of_environment,
    entries_of_file,
    from_environment,
    from_file,
    from_original,
)
from forebay.app.configuring.texts import parse, shown
from forebay.app.settings import Settings
from forebay.deliver.settings import QueueDeliverySettings
from forebay.model import Misconfigured, Rejected

__all__ = [
    "DEFAULT",
    "Loaded",
    "Reading",
    "Row",
    "build",
    "load_settings",
    "read_entries",
    "read_settings",
    "rows_of",
]

DEFAULT: Final = "default"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it may be shown: no secret is in it."""

    key: str
    value: Any
    """For programs: sizes in bytes, durations in seconds."""
    text: str
    """For people, as it could be written in a file."""
    source: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that hold, and where each comes from, by path."""

    settings: Settings
    origins: Mapping[str, str]
    deliveries: Mapping[str, QueueDeliverySettings] = {}
    """By name: queues that the server delivers itself."""

    def rows(self) -> list[Row]:
        """Every setting, for people and for `GET /v1/config`."""
        found = rows_of(SERVER, self.settings, self.origins)
        for name, delivery in self.deliveries.items():
            found += rows_of(DELIVERY, delivery, self.origins, f"deliver.{name}.")
        return found


def rows_of(
    schema: Schema, settings: msgspec.Struct, origins: Mapping[str, str], prefix: str = ""
) -> list[Row]:
    """Every setting of a value; keys and origins begin with `prefix`."""
    return [_row(setting, settings, prefix, origins) for setting in schema.settings.values()]


def _row(setting: Setting, settings: Any, prefix: str, origins: Mapping[str, str]) -> Row:
    value = settings
    for name in setting.path.split("."):
        value = getattr(value, name)
    text, key = shown(setting, value), f"{prefix}{setting.path}"
    is_hidden = setting.is_secret and bool(value)
    safe = text if is_hidden or isinstance(value, str) else value
    return Row(key=key, value=safe, text=text, source=origins.get(key, DEFAULT))


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What came of reading: settings, or everything that is wrong with them."""

    loaded: Loaded | None
    faults: list[Fault]


def load_settings(
    *,
    file: Path | None = None,
    file_source: str = "--config",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Given] | None = None,
) -> Loaded:
    """The settings; Misconfigured says everything that is wrong."""
    reading = read_settings(file=file, file_source=file_source, environ=environ, flags=flags)
    if reading.loaded is None:
        raise misconfigured(reading.faults)
    return reading.loaded


def read_settings(
    *,
    file: Path | None = None,
    file_source: str = "--config",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Given] | None = None,
) -> Reading:
    """Read a file, variables (the original server's first) and flags (by path), and check all of it."""
    found, faults = from_file(file, file_source) if file is not None else ({}, [])
    original, some = from_original(environ or {})
    variables, more = from_environment(environ or {})
    faults += some + more
    # A value that another one overrides is checked too: a file is right or wrong by itself.
    settings, origins, more = build(SERVER, (found, original, variables, flags or {}), faults)
    entries, others = read_entries(
        "deliver", DELIVERY, file=file, file_source=file_source, environ=environ or {}, origins=origins
    )
    if settings is None or others:
        return Reading(loaded=None, faults=more + others)
    assert isinstance(settings, Settings)
    deliveries = {name: made for name, made in entries.items() if isinstance(made, QueueDeliverySettings)}
    return Reading(loaded=Loaded(settings=settings, origins=origins, deliveries=deliveries), faults=[])


def read_entries(
    section: str,
    schema: Schema,
    *,
    file: Path | None,
    file_source: str,
    environ: Mapping[str, str],
    origins: dict[str, str],
) -> tuple[dict[str, msgspec.Struct], list[Fault]]:
    """A section whose keys are names, and all that is wrong with it; `origins` get those of its settings."""
    entries, faults = entries_of_file(file, file_source, section, schema) if file is not None else ({}, [])
    variables, more = entries_of_environment(environ, section, schema, entries)
    faults += more
    found: dict[str, msgspec.Struct] = {}
    for name in (*entries, *(name for name in variables if name not in entries)):
        given, overriding = entries.get(name, {}), variables.get(name, {})
        path = f"{section}.{name}"
        bad = [
            msgspec.structs.replace(fault, key=fault.key.removeprefix(f"{path}."))
            for fault in faults
            if fault.key.startswith(f"{path}.")
        ]
        place = f"{file}: {path}" if name in entries else next(iter(overriding.values())).source
        made, sources, wrong = build(schema, (given, overriding), bad, source=place)
        origins.update((f"{path}.{key}", said) for key, said in sources.items())
        near = nearest(name, entries) if name not in entries else None
        faults += [
            msgspec.structs.replace(
                fault,
                key=f"{path}.{fault.key}".removesuffix("."),
                hint=f"did you mean {section}.{near}?" if near else fault.hint,
            )
            for fault in wrong[len(bad) :]
        ]
        if made is not None:
            found[name] = made
    return found, faults


def build(
    schema: Schema, sources: Iterable[Mapping[str, Given]], faults: list[Fault], *, source: str = DEFAULT
) -> tuple[msgspec.Struct | None, dict[str, str], list[Fault]]:
    """The value that the sources make, the last one of a setting counting, and where each part is from.

    There is no value where there are faults: those that are given, or new ones. `source` is where a setting
    is missing that has no default.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given in sources:
        faults = [*faults, *_take(schema, given, values, origins)]
    made = _Build(values, origins, {fault.key for fault in faults}, source)
    root = inspect.type_info(schema.root)
    assert isinstance(root, inspect.StructType)
    settings = made.section(root, "")
    faults = [*faults, *made.faults]
    return (None if faults else settings), origins, faults


def _take(
    schema: Schema, given: Mapping[str, Given], values: dict[str, Any], origins: dict[str, str]
) -> Iterable[Fault]:
    faults = []
    for path, said in given.items():
        try:
            values[path] = _value(schema.settings[path], said.text)
            origins[path] = said.source
        except Rejected as error:
            faults.append(Fault(key=path, source=said.source, message=error.message, hint=error.hint))
    return faults


def _value(setting: Setting, text: str | None) -> Any:
    if text is None and not setting.optional:
        raise Rejected("it has no value", hint="give one, or remove the line")
    return None if text is None else parse(setting, text)


class _Build:
    """Makes the structs, from the inside out; their own checks speak where no part is at fault already."""

    def __init__(
        self, values: Mapping[str, Any], origins: Mapping[str, str], bad: set[str], source: str = DEFAULT
    ) -> None:
        self._values = values
        self._origins = origins
        self._bad = bad
        self._source = source
        self.faults: list[Fault] = []

    def section(self, struct: inspect.StructType, prefix: str) -> msgspec.Struct | None:
        """The struct of a section, or None when something in it is wrong."""
        parts: dict[str, Any] = {}
        whole = True
        for field in struct.fields:
            path = prefix + field.name
            if isinstance(field.type, inspect.StructType):
                parts[field.name] = self.section(field.type, f"{path}.")
                whole = whole and parts[field.name] is not None
            elif path in self._values:
                parts[field.name] = self._values[path]
            elif field.required and path not in self._bad:
                text, hint = "it is missing", "there is no default: give it a value"
                self.faults.append(Fault(key=path, source=self._source, message=text, hint=hint))
                whole = False
            whole = whole and path not in self._bad
        try:
            return struct.cls(**parts) if whole else None
        except Misconfigured as error:
            self.faults.append(self._fault(error, prefix))
            return None

    def _fault(self, error: Misconfigured, prefix: str) -> Fault:
        path = prefix + (error.key or "")
        said = [source for other, source in self._origins.items() if other.startswith(prefix)]
        source = self._origins.get(path) or (said[0] if said else DEFAULT)
        return Fault(key=path.removesuffix("."), source=source, message=error.message, hint=error.hint)
