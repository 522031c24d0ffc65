"""What is known of a queue by what was spooled for it, where nobody else knows it any more."""

from __future__ import annotations

from typing import Any

from forebay.api.queen.messages import is_made_here
from forebay.api.queen.options import Facts, creation_of
from forebay.model import Block


def creation_by(_name: str, block: Block) -> dict[str, Any] | None:
    """What a queue is told that is made for a spooled block; None for what any queue is told."""
    return creation_of(Facts()) if is_made_here(block) else None
