"""Families of series as a snapshot has them: names, labels and numbers, encoded as JSON.

Invariants: of a family each set of labels is there once, and a label without a value is the same as an empty
one; a family has no more series than its cap, and what is beyond it is counted in one series, `other`, so
that sums stay right. An age is kept as the time since when it counts, so that it grows between refreshes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import itemgetter
from typing import Final, Literal

import msgspec

from forebay.model import Corrupt, Rejected
from forebay.observe.metric_table import TABLE

__all__ = [
    "OTHER",
    "PART_AGE",
    "PART_SECONDS",
    "SERIES_MAX",
    "Document",
    "Family",
    "Kind",
    "decode_document",
    "encode_document",
    "family",
    "merged",
    "snapshot_family",
]

Kind = Literal["gauge", "counter", "age", "untyped"]
"""`age`: a gauge whose numbers are times, in seconds since 1970, and which shows how long ago they were.
`untyped`: a name of another system, whose ending says another type than its numbers have."""

PART_AGE: Final = "forebay_snapshot_part_age_seconds"
PART_SECONDS: Final = "forebay_snapshot_part_aggregation_seconds"
SERIES_MAX: Final = 10_000
OTHER: Final = "other"
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """All series of one name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    series: list[tuple[tuple[str, ...], float]]
    """The values of the labels, in the order of their names, and the number."""
    folded: int = 0
    """Series that are counted in `other`."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The families of a snapshot."""

    taken_at: float
    """To when it was counted, in seconds since 1970."""
    families: list[Family]

    @property
    def series(self) -> int:
        """How many series it has."""
        return sum(len(family.series) for family in self.families)


def family(
    name: str,
    kind: Kind,
    text: str,
    labels: Sequence[str],
    series: Iterable[tuple[Sequence[str | None], float]],
    *,
    series_max: int = SERIES_MAX,
) -> Family:
    """A family of these series, largest numbers first where there are too many; Rejected for a bad name.

    Series of the same labels are one: numbers are added up, and of ages the oldest counts.
    """
    bad = next((label for label in labels if not _LABEL.fullmatch(label)), None)
    if bad is not None or not _NAME.fullmatch(name):
        what = f"a label named {bad!r}" if bad is not None else f"a metric named {name!r}"
        raise Rejected(f"Prometheus has no {what[2:]}", hint="use letters, digits and _")
    found: dict[tuple[str, ...], float] = {}
    merge: Callable[[float, float], float] = min if kind == "age" else float.__add__
    for values, number in series:
        key = tuple([value or "" for value in values])
        assert len(key) == len(labels), f"{name} has {len(labels)} labels"
        found[key] = merge(found[key], float(number)) if key in found else float(number)
    kept, folded = sorted(found.items()), 0
    if len(kept) > series_max:
        kept.sort(key=itemgetter(1), reverse=kind != "age")  # those that are equal stay in their order
        beyond, kept = kept[series_max - 1 :], kept[: series_max - 1]
        other, folded = (OTHER,) * len(labels), len(beyond)
        rest = [number for _, number in beyond] + [number for key, number in kept if key == other]
        kept = sorted([one for one in kept if one[0] != other] + [(other, reduce(merge, rest))])
    return Family(name=name, kind=kind, help=text, labels=tuple(labels), series=kept, folded=folded)


def snapshot_family(
    name: str, series: Iterable[tuple[Sequence[str | None], float]], *, series_max: int = SERIES_MAX
) -> Family:
    """A family under a name of the table."""
    row = TABLE[name]
    assert row.kind != "histogram", "a snapshot has no histograms"
    return family(row.family_name, row.kind, row.help, row.labels, series, series_max=series_max)


def merged(
    name: str, document: Document, parts: Mapping[str, Document], seconds: Mapping[str, float] | None = None
) -> Document:
    """One document with the families of all parts, and how old each part is; a name belongs to its first.

    `seconds` says how long it took to make a part.
    """
    taken = {name: document.taken_at, **{part: found.taken_at for part, found in parts.items()}}
    health = [snapshot_family(PART_AGE, [((part,), at) for part, at in taken.items()])]
    if seconds:
        health.append(snapshot_family(PART_SECONDS, [((part,), took) for part, took in seconds.items()]))
    families = {each.name: each for each in (*document.families, *health)}
    for found in parts.values():
        for each in found.families:
            families.setdefault(each.name, each)
    return Document(taken_at=document.taken_at, families=list(families.values()))


class _Encoded(msgspec.Struct, frozen=True):
    """A document whose families are JSON: each is worked on by itself, so that others get their turn."""

    taken_at: float
    families: list[msgspec.Raw]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Encoded).decode
_decode_family: Final = msgspec.json.Decoder(Family).decode


def encode_document(document: Document) -> bytes:
    """A document as JSON."""
    families = [msgspec.Raw(_encode(each)) for each in document.families]
    return _encode(_Encoded(document.taken_at, families))


def decode_document(data: bytes) -> Document:
    """A document as it was encoded, or Corrupt."""
    try:
        found = _decode(data)
        families = [_decode_family(each) for each in found.families]
    except msgspec.DecodeError as error:
        hint = "the next refresh replaces it"
        raise Corrupt(f"the snapshot can't be read ({error})", hint=hint) from None
    return Document(taken_at=found.taken_at, families=families)
