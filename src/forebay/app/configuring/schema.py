"""Every setting there is, read off structs: those of a server in `forebay.app.settings`, or others.

The kind of a number follows from its name, as everywhere in Forebay: what ends with `bytes` is a size,
what ends with `seconds` is a duration (a qualifier like `max` may follow). A setting that keeps a name from
elsewhere says its kind itself, with `extra={"kind": "size"}`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import inspect

from forebay.app.settings import RelayConfig, Settings
from forebay.deliver.settings import EXAMPLE, QueueDeliverySettings
from forebay.relay.destinations import DESTINATION_EXAMPLE, RelayDestinationSettings

__all__ = [
    "DELIVERY", "ORIGINAL_VARIABLES", "OTHER_VARIABLES", "RELAY", "RELAY_DESTINATION", "SECTIONS", "SERVER",
    "SETTINGS", "Kind", "Schema", "Setting", "schema_of", "variable_of",
]  # fmt: skip

Kind: TypeAlias = Literal[
    "size", "duration", "integer", "number", "switch", "choice", "text", "list", "mapping"
]  # fmt: skip

_SIZE: Final = re.compile(r"_bytes(_max)?$")
_DURATION: Final = re.compile(r"_seconds(_max)?$")

OTHER_VARIABLES: Final = {
    "FOREBAY_CONFIG": "The configuration file, where `--config` doesn't name one.",
    "FOREBAY_STORE": "The store that commands talk to, where `--store` doesn't name one. The log of a server "
    "that is started, where neither `--store` nor `FOREBAY_STORE_URL` names one; the address of a server "
    "(`http://`) says nothing to it.",
    "FOREBAY_KEY": "The API key that commands show to a server, where `--key` doesn't name one.",
}
"""Variables beside those of the settings. Any other that begins with FOREBAY_ is a mistake."""

ORIGINAL_VARIABLES: Final = {
    "FILE_BUFFER_DIR": ("spool.folder", ""),
    "FILE_BUFFER_FLUSH_MS": ("spool.flush_seconds", "ms"),
    "FILE_BUFFER_MAX_BATCH": ("spool.batch_events_max", ""),
    "FILE_BUFFER_EVENTS_PER_FILE": ("spool.events_per_file", ""),
    "FILE_BUFFER_RETRY_INTERVAL": ("spool.retry_seconds", "s"),
    "FILE_BUFFER_STARTUP_RECOVERY_TIMEOUT": ("spool.startup_seconds_max", "s"),
    "QUEEN_ENCRYPTION_KEY": ("queen.encryption_key", ""),
}
"""What the original server calls settings that we have, too: the path of each, and the unit of a number."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    path: str
    kind: Kind
    optional: bool
    """It may be none."""
    default: Any
    least: float | None = None
    most: float | None = None
    length_min: int | None = None
    pattern: str | None = None
    meaning: str | None = None
    """What a text must be, in words."""
    choices: tuple[str, ...] = ()
    is_secret: bool = False
    """Nobody is to see the value, wherever settings are shown and whatever is wrong with it."""
    owner: type[msgspec.Struct]
    """The struct that has it as a field."""

    @property
    def name(self) -> str:
        """The last word of the path."""
        return self.path.rpartition(".")[2]

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of(self.path)


def variable_of(path: str) -> str:
    """The environment variable of a path: `server.listen` is FOREBAY_SERVER_LISTEN."""
    return "FOREBAY_" + path.replace(".", "_").upper()


def _walk(struct: inspect.StructType, prefix: str, defaults: msgspec.Struct) -> Iterator[Setting]:
    for field in struct.fields:
        path, default = f"{prefix}{field.name}", getattr(defaults, field.name)
        if _has_entries(field.type):
            continue
        if isinstance(field.type, inspect.StructType):
            yield from _walk(field.type, f"{path}.", default)
        else:
            yield _setting(path, field.type, default, struct.cls)


def _has_entries(kind: inspect.Type) -> bool:
    """Whether a field is a section whose keys are names of the user's choice."""
    return isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StructType)


def _setting(path: str, kind: inspect.Type, default: Any, owner: type[msgspec.Struct]) -> Setting:
    optional = isinstance(kind, inspect.UnionType)
    if isinstance(kind, inspect.UnionType):
        (kind,) = (member for member in kind.types if not isinstance(member, inspect.NoneType))
    meaning: str | None = None
    is_secret = False
    named: Kind | None = None
    if isinstance(kind, inspect.Metadata):
        meaning = (kind.extra_json_schema or {}).get("description")
        is_secret = (kind.extra or {}).get("secret", False)
        named = (kind.extra or {}).get("kind")
        kind = kind.type
    exclusive = getattr(kind, "gt", None), getattr(kind, "lt", None)
    assert exclusive == (None, None), f"{path} has a bound that nothing here looks at"
    return Setting(
        path=path,
        kind=named or _kind(path, kind),
        optional=optional,
        default=default,
        least=getattr(kind, "ge", None),
        most=getattr(kind, "le", None),
        length_min=getattr(kind, "min_length", None),
        pattern=getattr(kind, "pattern", None),
        meaning=meaning,
        choices=tuple(map(str, kind.values)) if isinstance(kind, inspect.LiteralType) else (),
        is_secret=is_secret,
        owner=owner,
    )


def _kind(path: str, kind: inspect.Type) -> Kind:
    if isinstance(kind, inspect.IntType):
        return "size" if _SIZE.search(path) else "integer"
    if isinstance(kind, inspect.FloatType):
        return "duration" if _DURATION.search(path) else "number"
    if isinstance(kind, inspect.BoolType):
        return "switch"
    if isinstance(kind, inspect.LiteralType):
        return "choice"
    if isinstance(kind, inspect.VarTupleType | inspect.DictType):
        return "list" if isinstance(kind, inspect.VarTupleType) else "mapping"
    assert isinstance(kind, inspect.StrType), f"{path} is of a kind that can't be read from text"
    return "text"


def _sections(struct: inspect.StructType, prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield prefix.removesuffix("."), tuple(field.name for field in struct.fields)
    for field in struct.fields:
        if isinstance(field.type, inspect.StructType):
            yield from _sections(field.type, f"{prefix}{field.name}.")


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one program."""

    root: type[msgspec.Struct]
    settings: dict[str, Setting]
    """All of them by path, in the order of the structs."""
    sections: dict[str, tuple[str, ...]]
    """The names in each section, by its path; the whole is the section with the empty path."""
    entries: dict[str, "Schema"] = {}
    """Sections whose keys are names of the user's choice, and the settings of each such entry."""


def schema_of(
    root: type[msgspec.Struct],
    *,
    example: msgspec.Struct | None = None,
    entries: dict[str, Schema] | None = None,
) -> Schema:
    """The settings of a struct. Where a field has no default, `example` is a value of it."""
    kind = inspect.type_info(root)
    assert isinstance(kind, inspect.StructType)
    settings = {setting.path: setting for setting in _walk(kind, "", example or root())}
    return Schema(root=root, settings=settings, sections=dict(_sections(kind, "")), entries=entries or {})


DELIVERY: Final = schema_of(QueueDeliverySettings, example=EXAMPLE)
"""One entry of the section `deliver`."""
SERVER: Final = schema_of(Settings, entries={"deliver": DELIVERY})
RELAY_DESTINATION: Final = schema_of(RelayDestinationSettings, example=DESTINATION_EXAMPLE)
"""One entry of the section `relay.destinations`."""
RELAY: Final = schema_of(RelayConfig, entries={"relay.destinations": RELAY_DESTINATION})
SETTINGS: Final = SERVER.settings
SECTIONS: Final = SERVER.sections
