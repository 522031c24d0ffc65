"""Settings of a FastQueue."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from forebay.model import Misconfigured
from forebay.model.quantity import format_bytes

Durability = Literal["always", "interval", "memory"]
FormatName = Literal["native", "governor"]
Compression = Literal["snappy", "none"]

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0)]

CHUNK_BYTES_MIN: int = 64
CHUNK_BYTES_MAX: int = 1 << 36


class FastQueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are kept; sizes in bytes, times in seconds."""

    format: FormatName = "native"
    """The layout of chunk files: ours, or that of metrics-governor, byte for byte."""
    durability: Durability = "always"
    """`always`: synced when a push returns; `interval`: within `meta_sync_interval`; `memory`: no promise."""
    max_size: _Count | None = None
    """Blocks that may be held, until they are acknowledged."""
    max_bytes: _Count | None = None
    """Bytes of blocks, uncompressed, that may be held until they are acknowledged."""
    block_bytes_max: _Count | None = None
    """The largest block; by default the largest that fits into a chunk."""
    inmemory_blocks: _Count = 2048
    """Blocks that the memory channel holds."""
    inmemory_bytes: _Count = 256 << 20
    """Bytes that the memory channel holds."""
    chunk_size: Annotated[int, msgspec.Meta(ge=CHUNK_BYTES_MIN, le=CHUNK_BYTES_MAX)] = 512 << 20
    """Bytes of a chunk file before the next one is begun."""
    meta_sync_interval: _Seconds = 1.0
    """How often the cursor is written down, and with `interval` how often data is synced."""
    stale_flush: _Seconds = 30.0
    """How long blocks stay in memory alone while nothing is pushed, with `memory`."""
    write_buffer_size: _Count = 256 << 10
    """Bytes that are gathered for one write."""
    compression: Compression = "snappy"
    """The compression of blocks on disk, each by itself."""


def largest_block(settings: FastQueueSettings, overhead: int) -> int:
    """The bytes that one block may have, in a chunk that needs `overhead` for a block besides its data."""
    fits = settings.chunk_size - overhead
    if fits < 0:
        text = f"chunk_size {format_bytes(settings.chunk_size)} has no room for a block"
        raise Misconfigured(text, hint=f"give at least {overhead + 1} bytes", key="chunk_size")
    asked = settings.block_bytes_max
    if asked is not None and asked > fits:
        text = f"a block of block_bytes_max ({format_bytes(asked)}) doesn't fit into a chunk"
        raise Misconfigured(text, hint="raise chunk_size, or lower block_bytes_max", key="block_bytes_max")
    return fits if asked is None else asked
