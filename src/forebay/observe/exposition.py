"""Families as the text that Prometheus reads: the classic format, and OpenMetrics.

Most of a snapshot stays as it is until the next one, so its lines are put together and compressed once. Ages
are written anew for each scrape, after all the rest.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from copy import copy
from typing import Final

from forebay.observe.document import Document, Family
from forebay.observe.metric_table import unit_of

__all__ = ["Exposition", "GzipStart", "render"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})

SAME_SECONDS: Final = 0.1
"""How much too small an age may be: where many scrape at once, ages are written once for all of them."""


_GZIP_LEVEL: Final = 1
"""Metrics shrink to a tenth even so."""
_GZIP_FORMAT: Final = 31


class GzipStart:
    """The start of a gzip file, made once, which any number of ends can follow."""

    def __init__(self, data: bytes) -> None:
        self._packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
        self._start = self._pack(b"", data)

    def then(self, data: bytes) -> GzipStart:
        """This and some more; this one stays as it is."""
        longer = copy(self)
        longer._packer = self._packer.copy()  # noqa: SLF001 - of its own class
        longer._start = longer._pack(self._start, data)  # noqa: SLF001 - likewise
        return longer

    def _pack(self, before: bytes, data: bytes) -> bytes:
        return b"".join((before, self._packer.compress(data), self._packer.flush(zlib.Z_SYNC_FLUSH)))

    def end(self, data: bytes) -> bytes:
        """The whole file, which ends with these bytes."""
        packer = self._packer.copy()
        return b"".join((self._start, packer.compress(data), packer.flush()))


class Exposition:
    """One document, ready to be shown at any time."""

    def __init__(self, document: Document, *, open_metrics: bool) -> None:
        ages = [each for each in document.families if each.kind == "age"]
        fixed = [each for each in document.families if each.kind != "age"]
        self._fixed = "".join([render(each, open_metrics=open_metrics) for each in fixed]).encode()
        self._fixed_gzip = GzipStart(self._fixed)
        self._ages = [_ages(each, open_metrics=open_metrics) for each in ages]
        self._written_at = -math.inf
        self._data = b""
        self._gzip: GzipStart | None = None

    def data(self, now: float) -> bytes:
        """All families; `now` is in seconds since 1970. OpenMetrics' last line is left to the caller.

        Scrapes that come together get the same bytes: copies of a megabyte take time.
        """
        if not self._is_recent(now):
            self._write(now)
        return self._data

    def gzip(self, now: float) -> GzipStart:
        """The same, compressed."""
        if self._gzip is None or not self._is_recent(now):
            ages = self.data(now)[len(self._fixed) :]
            self._gzip = self._fixed_gzip.then(ages)
        return self._gzip

    def _is_recent(self, now: float) -> bool:
        return 0 <= now - self._written_at < SAME_SECONDS

    def _write(self, now: float) -> None:
        ages = "".join([ages(now) for ages in self._ages]).encode()
        self._data, self._gzip, self._written_at = self._fixed + ages, None, now


def render(family: Family, *, open_metrics: bool) -> str:
    """A family whose numbers are shown as they are."""
    shown = _shown_name(family)
    lines = (f"{shown}{labels} {_number(value)}\n" for labels, value in _labelled(family))
    return _head(family, open_metrics=open_metrics) + "".join(lines)


def _ages(family: Family, *, open_metrics: bool) -> Callable[[float], str]:
    head, shown = _head(family, open_metrics=open_metrics), _shown_name(family)
    starts = [(f"{shown}{labels} ", value) for labels, value in _labelled(family)]

    def text(now: float) -> str:
        return head + "".join([f"{start}{max(0.0, now - since):.3f}\n" for start, since in starts])

    return text


def _shown_name(family: Family) -> str:
    return f"{family.name}_total" if family.kind == "counter" else family.name


def _head(family: Family, *, open_metrics: bool) -> str:
    # In the classic format a counter is declared by the name of its series, in OpenMetrics without `_total`.
    name = family.name if open_metrics else _shown_name(family)
    escapes = _ESCAPES if open_metrics else _HELP_ESCAPES
    kind = _kind(family, open_metrics=open_metrics)
    head = f"# HELP {name} {family.help.translate(escapes)}\n# TYPE {name} {kind}\n"
    unit = unit_of(family.name) if open_metrics else ""
    return f"{head}# UNIT {name} {unit}\n" if unit else head


def _kind(family: Family, *, open_metrics: bool) -> str:
    if family.kind == "untyped":
        return "unknown" if open_metrics else "untyped"
    return "counter" if family.kind == "counter" else "gauge"


def _labelled(family: Family) -> Iterable[tuple[str, float]]:
    for values, number in family.series:
        pairs = zip(family.labels, values, strict=True)
        text = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in pairs)
        yield (f"{{{text}}}" if text else ""), number


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)  # noqa: PLR2004 - exact as a float
