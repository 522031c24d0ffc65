"""Records: small values beside the blocks, by space and key. The rules that hold for every log.

A record that has expired is not there: nobody reads it, and the next write of its key is the first.
Keys are in the order of UTF-8's bytes, which is the order of Python's strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from forebay.log.seam import VersionConflict
from forebay.log.values import Kept, Record
from forebay.model import TIME_MAX, Rejected, TooLarge, format_bytes

RECORDS_MAX: Final = 20_000
"""How many records one commit writes, or one call reads by key."""
RECORDS_BYTES_MAX: Final = 64 << 20
"""All values of a commit together."""
VALUE_BYTES_MAX: Final = 1 << 20
SPACE_BYTES_MAX: Final = 64
KEY_BYTES_MAX: Final = 1_024
SCANNED_MAX: Final = 10_000
"""How many records one scan may bring."""
VERSION_MAX: Final = (1 << 63) - 1

_LAST: Final = "\U0010ffff"
_END: Final = _LAST * KEY_BYTES_MAX
_SURROGATES: Final = range(0xD800, 0xE000)


def check_records(records: Sequence[Record]) -> None:
    """Raise Rejected or TooLarge unless a commit may write these."""
    if not records:
        return
    _check_count(len(records))
    seen = set[tuple[str, str]]()
    for record in records:
        _check(record)
        if (record.space, record.key) in seen:
            text = f"two records of one commit have the key {record.key!r} in {record.space!r}"
            raise Rejected(text, hint="write each key once")
        seen.add((record.space, record.key))
    if (size := sum(len(record.value or b"") for record in records)) > RECORDS_BYTES_MAX:
        text = f"the records of a commit take {size} bytes, over {format_bytes(RECORDS_BYTES_MAX)}"
        raise TooLarge(text, hint="write fewer of them at once")


def check_keys(space: str, keys: Sequence[str]) -> None:
    """Raise Rejected or TooLarge unless these can be looked for."""
    check_space(space)
    _check_count(len(keys))
    for key in keys:
        _check_text(key, "a record's key", KEY_BYTES_MAX)


def check_scan(space: str, prefix: str, after: str, limit: int) -> None:
    """Raise Rejected or TooLarge unless this can be scanned."""
    check_space(space)
    _check_text(prefix, "the prefix of a scan", KEY_BYTES_MAX)
    _check_text(after, "the key to scan after", KEY_BYTES_MAX)
    if not 0 < limit <= SCANNED_MAX:
        raise Rejected(f"{limit} records at once", hint=f"ask for 1 to {SCANNED_MAX}")


def check_space(space: str) -> None:
    """Raise Rejected or TooLarge unless records may be in this space."""
    _check_text(space, "a record's space", SPACE_BYTES_MAX)
    if not space:
        raise Rejected("a record's space is empty", hint="name the feature that it belongs to")


def bytes_of(records: Iterable[Record]) -> int:
    """How much these take on their way into the log."""
    return sum(len(record.key) + len(record.value or b"") for record in records)


def prefix_end(prefix: str) -> str:
    """A text past all keys that begin with `prefix`, but for those that don't."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return _END
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)


def current(kept: Kept | None, now: int) -> Kept | None:
    """A record, unless it has expired."""
    return None if kept is None or (kept.expires_at is not None and kept.expires_at <= now) else kept


def written(record: Record, kept: Kept | None, now: int) -> Kept | None:
    """What is there after a write, given what was (expired or not); VersionConflict if it may not be."""
    found = current(kept, now)
    version = 0 if found is None else found.version
    if record.version not in (None, version):
        raise version_conflict(record, version)
    if record.value is None:
        return None
    return Kept(record.key, record.value, version + 1, now, record.expires_at)


def version_conflict(record: Record, found: int) -> VersionConflict:
    """The error for a record that is not at the version that was expected."""
    state = f"is at version {found}" if found else "isn't there"
    text = f"nothing was written: the record {record.key!r} in {record.space!r} {state}, not {record.version}"
    hint = "read it again, and decide anew"
    return VersionConflict(text, hint=hint, space=record.space, key=record.key, found=found)


def _check(record: Record) -> None:
    check_space(record.space)
    _check_text(record.key, "a record's key", KEY_BYTES_MAX)
    if not record.key:
        raise Rejected("a record's key is empty", hint="give it at least one character")
    if record.value is not None:
        _check_value(record)
    if record.expires_at is not None and not 0 <= record.expires_at <= TIME_MAX:
        text = f"the record {record.key!r} expires at {record.expires_at!r}"
        raise Rejected(text, hint="give whole microseconds since 1970, up to the year 9999")
    if record.version is not None and not 0 <= record.version <= VERSION_MAX:
        raise Rejected(f"a record's version is {record.version!r}", hint="give 0 or more, or none")


def _check_value(record: Record) -> None:
    if type(record.value) is not bytes:
        text = f"the value of {record.key!r} is {type(record.value).__name__}, not bytes"
        raise Rejected(text, hint="encode it first")
    if len(record.value) > VALUE_BYTES_MAX:
        size, most = len(record.value), format_bytes(VALUE_BYTES_MAX)
        raise TooLarge(f"the value of {record.key!r} is {size} bytes, over {most}", hint="split it")


def _check_count(count: int) -> None:
    if count > RECORDS_MAX:
        raise TooLarge(f"{count} records at once, over {RECORDS_MAX}", hint="name fewer of them")


def _check_text(text: object, what: str, bytes_max: int) -> None:
    if not isinstance(text, str):
        raise Rejected(f"{what} is {type(text).__name__}, not text", hint="give a string")
    try:
        length = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        text = f"{what} {text[:64]!a} cannot be written as UTF-8"
        raise Rejected(text, hint="remove the lone surrogates") from None
    if length > bytes_max:
        raise TooLarge(f"{what} is {length} bytes long, over {bytes_max}", hint="shorten it")
    if "\0" in text:
        raise Rejected(f"{what} {text[:64]!a} holds a NUL", hint="remove it")
