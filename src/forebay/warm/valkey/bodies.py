"""Bodies of parcels that went out in part: the next part comes without the body.

Invariant: no more than so many parcels are kept, of no more than so many bytes together; the one that was
used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from forebay.model import Block
from forebay.warm.valkey.slips import name_of
from forebay.warm.values import Leased, Parcel, Shelf

_PARCELS_MAX: Final = 16
_BYTES_MAX: Final = 16 << 20

_Key = tuple[int, str]


class Bodies:
    """Blocks by their shelf and epoch, and by the name of their parcel."""

    def __init__(self, parcels_max: int = _PARCELS_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._parcels_max = parcels_max
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[_Key, str], Parcel] = OrderedDict()
        self._bytes = 0

    def known(self, shelf: Shelf, epoch: str) -> Mapping[str, Block]:
        """What is kept of a shelf, by the name of the parcel."""
        key = shelf.group, epoch
        return {
            name: parcel.block
            for (owner, name), parcel in self._kept.items()
            if owner == key and parcel.block is not None
        }

    def keep(self, leased: Leased) -> None:
        """Keep the body of what went out, if more of its parcel is to come."""
        parcel, lease = leased.parcel, leased.lease
        key = (lease.group, lease.epoch), name_of(parcel)
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes -= old.size
        if leased.places[-1] + 1 < len(parcel) and parcel.size <= self._bytes_max:
            self._kept[key] = parcel
            self._bytes += parcel.size
        while self._bytes > self._bytes_max or len(self._kept) > self._parcels_max:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size
