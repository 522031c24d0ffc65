"""What is known of a queue by what was spooled for it, where nobody else knows it any more."""

from __future__ import annotations

from typing import Any

from forebay.api.queen.options import Facts, creation_of
from forebay.model import Block
from forebay.spool.original import MADE, NAMESPACE, TASK


def creation_by(_name: str, block: Block, *, known: bool = False) -> dict[str, Any] | None:
    """What a queue is told that is made for a spooled block; None for what any queue is told.

    It is one of Queen's where the block says so, or where that is known otherwise.
    """
    made = next((headers for headers in block.header_table or () if MADE in headers), None)
    if made is None:
        return creation_of(Facts()) if known else None
    return creation_of(Facts(made.get(NAMESPACE, ""), made.get(TASK, "")))
