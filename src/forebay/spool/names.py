"""Names of spool files: what they say about a file, and their order.

`failover_<uuid7>.buf.tmp` is being written, `failover_<uuid7>.buf` is finished; `qos0_…` likewise, and
`settle_…`, which holds what became of tasks. Files of the original server may have shorter ids.

Invariants: the order of ids is the order of writing, also when the clock goes back between two runs.
"""

import re
from collections.abc import Iterable
from functools import total_ordering
from typing import Final, Literal, cast, get_args

import msgspec

from forebay.model import format_id, mint

Prefix = Literal["failover", "qos0", "settle"]
State = Literal["writing", "finished"]

FAILED: Final = "failed"
"""The folder, within that of the spool, for what was set aside."""
RESERVE: Final = "reserve"
"""A file that only holds space, for settlements on a full disk."""
_NAME: Final = re.compile(
    rf"({'|'.join(get_args(Prefix))})_([0-9a-f]{{8}}(?:-?[0-9a-f])*)\.buf(\.tmp)?", re.ASCII
)
_ID_DIGITS: Final = 32
_TIME_DIGITS: Final = 12


@total_ordering
class FileName(msgspec.Struct, frozen=True):
    """A name taken apart."""

    prefix: Prefix
    id: str
    state: State

    def __str__(self) -> str:
        """Write the name."""
        return f"{self.stem}.buf.tmp" if self.state == "writing" else f"{self.stem}.buf"

    def __lt__(self, other: "FileName") -> bool:
        """Older files come first."""
        return (self.id, self.prefix) < (other.id, other.prefix)

    @property
    def stem(self) -> str:
        """What stays the same for all of a file's life."""
        return f"{self.prefix}_{self.id}"

    @property
    def finished(self) -> "FileName":
        """The name that the file has when it is complete."""
        return FileName(self.prefix, self.id, "finished")

    def minted_at(self) -> int | None:
        """When the file was begun, in microseconds, if the id has room for that."""
        digits = self.id.replace("-", "")[:_TIME_DIGITS]
        return int(digits, 16) * 1000 if len(digits) == _TIME_DIGITS else None


def parse_name(name: str) -> FileName | None:
    """Take a name apart; None where it isn't that of a spool file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return FileName(cast("Prefix", found[1]), found[2], "writing" if found[3] else "finished")


def sort_names(names: Iterable[str], state: State) -> list[FileName]:
    """The files of one state, oldest first; other names are left out."""
    parsed = (parse_name(name) for name in names)
    return sorted(name for name in parsed if name is not None and name.state == state)


def next_name(prefix: Prefix, last: str) -> FileName:
    """A fresh name that comes after the id `last`, whatever the clock says."""
    id = format_id(mint())
    if id <= last:
        digits = last.replace("-", "").ljust(_ID_DIGITS, "0")[:_ID_DIGITS]
        id = format_id((int(digits, 16) + 1).to_bytes(16, "big"))
    return FileName(prefix, id, "writing")
