"""The seam under snapshots: a document that is published whole by one writer at a time, and read by anybody.

A writer has a term: it begins where no other lasts, and has a number that is higher than those before it.
Invariants: who reads gets a document as it was published, with its own metadata, or none, where only the
metadata's status changes later, and only by the writer whose term it is; what is current
never becomes an older one; a writer whose term was taken over publishes nothing more, however long it was
paused; a publication that fails leaves what was current.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal, Protocol

import msgspec

from forebay.model import Conflict, Corrupt, Rejected

__all__ = [
    "ERROR_CHARACTERS_MAX", "KEEP_VERSIONS", "PREFIX", "Published", "SnapshotMeta", "SnapshotStore", "Term",
    "TermOver", "check_keep", "check_whole", "decode_meta", "encode_meta", "failed_meta", "meta_of",
]  # fmt: skip

KEEP_VERSIONS: Final = 3
PREFIX: Final = "forebay:metrics:queue:snapshot"
"""What keys begin with where it is kept in keys."""
ERROR_CHARACTERS_MAX: Final = 500


class TermOver(Conflict):
    """Another writer has begun a term: publish nothing under this one."""


class Term(msgspec.Struct, frozen=True):
    """The right to publish, for a while."""

    owner: str
    number: int
    """Higher than those of all terms before; the fencing number."""


class SnapshotMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata beside a snapshot. Fields that a newer version adds are passed over."""

    generated_at_unix: float
    source: str
    """From where it was made: `counters`, `spark`."""
    aggregation_duration_ms: float
    rows_total: int
    """Series in it."""
    status: Literal["ok", "error"] = "ok"
    """`error` while refreshes fail since it was published."""
    error_message: str | None = None
    """Why the last one failed, cut short."""
    owner: str
    fence: int
    """The number of the term in which it was published."""
    bytes: int
    checksum: int
    """CRC-32 of the document."""


class Published(msgspec.Struct, frozen=True):
    """A snapshot as it was published."""

    version: int
    data: bytes
    meta: SnapshotMeta


class SnapshotStore(Protocol):
    """A place of snapshots. Every verb raises Unavailable while it can't be reached."""

    async def begin_term(self, owner: str, seconds: float) -> Term | None:
        """Begin a term that lasts so long, or go on with one's own; None while another's lasts."""
        ...

    async def renew_term(self, term: Term, seconds: float) -> bool:
        """Let a term last so long from now on; False where another one has begun, or nobody knows of it."""
        ...

    async def end_term(self, term: Term) -> None:
        """Let others begin at once. A term that is over already is left alone."""
        ...

    async def publish(self, term: Term, data: bytes, meta: SnapshotMeta) -> int:
        """Make a document the current one; its version. TermOver where the term was taken over."""
        ...

    async def note_failure(self, term: Term, error: str) -> bool:
        """Say in the metadata of the current document that a refresh has failed since.

        The next document is ok again. False where there is none, or the term is over: nothing is said then.
        """
        ...

    async def current(self, after: int = 0) -> Published | None:
        """The current document; None where there is none, or its version is `after`, which the caller has.

        Corrupt where what is there isn't whole.
        """
        ...

    async def versions(self) -> list[int]:
        """The versions that are kept, oldest first."""
        ...


def meta_of(
    term: Term, data: bytes, *, source: str, generated_at: float, seconds: float, rows: int
) -> SnapshotMeta:
    """The metadata of a document, as it is published."""
    return SnapshotMeta(
        generated_at_unix=generated_at,
        source=source,
        aggregation_duration_ms=round(seconds * 1000, 3),
        rows_total=rows,
        owner=term.owner,
        fence=term.number,
        bytes=len(data),
        checksum=zlib.crc32(data),
    )


def failed_meta(meta: SnapshotMeta, error: str) -> SnapshotMeta:
    """The metadata of a document after a refresh that failed."""
    return msgspec.structs.replace(meta, status="error", error_message=error[:ERROR_CHARACTERS_MAX])


def check_keep(keep_versions: int) -> int:
    """How many versions are kept, or Rejected."""
    if type(keep_versions) is not int or not 1 <= keep_versions <= 1_000:  # noqa: PLR2004 - the bound itself
        raise Rejected(f"{keep_versions!r} versions can't be kept", hint="keep 1 to 1,000")
    return keep_versions


def check_whole(version: int, data: bytes, meta: SnapshotMeta) -> Published:
    """A document that is as long as it was, and has the checksum that it had, or Corrupt."""
    if len(data) != meta.bytes or zlib.crc32(data) != meta.checksum:
        text = f"snapshot v{version} has {len(data)} bytes of {meta.bytes}, or others than were published"
        raise Corrupt(text, hint="the next refresh replaces it")
    return Published(version, data, meta)


encode_meta = msgspec.json.Encoder().encode
_decode_meta: Final = msgspec.json.Decoder(SnapshotMeta).decode


def decode_meta(version: int, text: bytes) -> SnapshotMeta:
    """Metadata as it was published, or Corrupt."""
    try:
        return _decode_meta(text)
    except msgspec.DecodeError as error:
        hint = "the next refresh replaces it"
        raise Corrupt(f"the metadata of snapshot v{version} can't be read ({error})", hint=hint) from None
