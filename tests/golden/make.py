"""How the golden files were made: one block per file, in format version 1.

Run it as `python tests/golden/make.py` from the root of the repository, with forebay installed. It
writes only the files that are not there: a golden file is never made again, as it stands for blocks
that are already on somebody's disk. A new version of the format gets new files.
"""

from pathlib import Path
from typing import Final

from forebay.model import Block, Compression, Message, encode

FOLDER: Final = Path(__file__).parent
CREATED_AT: Final = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
ID: Final = bytes.fromhex("019b76daa800700080000000000000ff")

SMALL: Final = Block.of([Message(b"hello"), Message(b"")], id=ID, created_at=CREATED_AT)

ORDERS: Final = Block.of(
    [
        Message(f'{{"order": {number}, "state": "paid", "currency": "EUR"}}'.encode())
        for number in range(1000, 1020)
    ],
    id=ID,
    created_at=CREATED_AT,
)

SOME_HEADERS: Final = Block.of(
    [Message(b"with", headers={"flow": "orders"}), Message(b"without", headers={})],
    id=ID,
    created_at=CREATED_AT,
)

RICH: Final = Block.of(
    [
        Message(b"a", "north", "t-1", {"flow": "orders", "action": "load"}, CREATED_AT + 1),
        Message(bytes(range(256)), "süd/50 %", None, {"flow": "orders", "action": "load"}),
        Message(b"", "", "t-3 ✓", None, 0),
        Message(b"d" * 300, "north", "t-4", {"trace": ""}, 253_402_300_799_999_999),
    ],
    id=bytes.fromhex("f81d4fae7dec41d0a76500a0c91e6bf6"),
    created_at=0,
)

GOLDEN: Final[dict[str, tuple[Block, Compression]]] = {
    "small": (SMALL, Compression.NONE),
    "none": (ORDERS, Compression.NONE),
    "lz4": (ORDERS, Compression.LZ4),
    "zstd": (ORDERS, Compression.ZSTD),
    "snappy": (ORDERS, Compression.SNAPPY),
    "some-headers": (SOME_HEADERS, Compression.NONE),
    "rich": (RICH, Compression.NONE),
}


def main() -> None:
    """Write what is missing."""
    for name, (block, compression) in GOLDEN.items():
        path = FOLDER / f"{name}.block"
        if not path.exists():
            path.write_bytes(encode(block, compression))


if __name__ == "__main__":
    main()
