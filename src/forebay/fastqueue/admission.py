"""The gate for blocks before anything is changed: their type, their size, and the room that is left."""

from collections.abc import Sequence
from typing import Final

from forebay.fastqueue.faults import count_error, size_error
from forebay.fastqueue.settings import FastQueueSettings
from forebay.model import Rejected, TooLarge
from forebay.model.quantity import format_bytes

_BYTES: Final[tuple[type, ...]] = (bytes, bytearray, memoryview)


def checked_blocks(datas: Sequence[bytes], bytes_max: int) -> tuple[Sequence[bytes], int]:
    """Blocks as bytes that nobody can change, and their size together; raise `Rejected` or `TooLarge`."""
    if not set(map(type, datas)) <= {bytes}:
        for index, data in enumerate(datas):
            if not isinstance(data, _BYTES):
                raise Rejected(f"block {index} is {type(data).__name__}, not bytes", hint="encode it first")
        # A copy: a buffer belongs to the caller, who may change it once the push returns.
        datas = [bytes(data) for data in datas]
    sizes = list(map(len, datas))
    if max(sizes, default=0) > bytes_max:
        index = next(i for i, size in enumerate(sizes) if size > bytes_max)
        raise TooLarge(
            f"block {index} is {sizes[index]} bytes, over {format_bytes(bytes_max)}",
            hint="split it, or raise block_bytes_max and chunk_size",
        )
    return datas, sum(sizes)


def check_room(settings: FastQueueSettings, entry_count: int, total_bytes: int) -> None:
    """Raise `Full` where the queue would hold more than it may."""
    if settings.max_size is not None and entry_count > settings.max_size:
        raise count_error(settings.max_size)
    if settings.max_bytes is not None and total_bytes > settings.max_bytes:
        raise size_error(settings.max_bytes)
