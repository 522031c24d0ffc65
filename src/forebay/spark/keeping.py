"""The Python processes that Spark keeps for the next task, and what they need not do each time.

After every task Spark has such a process collect garbage, which walks over all that was ever imported: 40 ms
with us, Arrow and pandas on board, as much as it takes to read 50,000 messages. And memory that a block takes
is given back to the system and asked for again: a third of the time that it takes to make blocks of rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
from typing import Final

KEPT_BYTES: Final = 64 << 20
"""Memory that is kept for the next page of rows at most, besides what is in use."""
_LARGE_BYTES: Final = 32 << 20
"""What is larger goes back at once: the C library's own bound."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""As glibc numbers them."""


@functools.cache
def settle_in() -> None:
    """Keep imports out of later collections, and some memory, in a process that Spark keeps; once.

    Whoever calls it has imported what the work needs. Elsewhere nothing is done: the process is not ours.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):  # set by Spark, for those processes alone
        gc.collect()
        gc.freeze()
        _keep_memory()


def _keep_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library: it does as it does
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
