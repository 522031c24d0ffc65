"""Families as the text that Prometheus reads: the classic format, and OpenMetrics.

Most of a snapshot stays as it is until the next one, so its lines are put together once; only ages are
written anew for each scrape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from forebay.observe.document import Document, Family
from forebay.observe.metric_table import unit_of

__all__ = ["Exposition", "render"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})

SAME_SECONDS: Final = 0.1
"""How much too small an age may be: where many scrape at once, ages are written once for all of them."""


class Exposition:
    """One document, ready to be shown at any time."""

    def __init__(self, document: Document, *, open_metrics: bool) -> None:
        self._parts: list[str | Callable[[float], str]] = []
        self._last = (-math.inf, b"")
        for family in document.families:
            if family.kind == "age":
                self._parts.append(_ages(family, open_metrics=open_metrics))
            else:
                self._parts.append(render(family, open_metrics=open_metrics))

    def text(self, now: float) -> str:
        """All families; `now` is in seconds since 1970. OpenMetrics' last line is left to who adds more."""
        return "".join([part if isinstance(part, str) else part(now) for part in self._parts])

    def data(self, now: float) -> bytes:
        """The same as bytes; those who come together get the same ones: copies of a megabyte take time."""
        at, data = self._last
        if not 0 <= now - at < SAME_SECONDS:
            data = self.text(now).encode()
            self._last = now, data
        return data


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
