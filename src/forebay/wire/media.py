"""The names of the encodings."""

from typing import Final

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
MSGPACK: Final = "application/msgpack"
BLOCK: Final = "application/vnd.forebay.block"
PROBLEM: Final = "application/problem+json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

MSGPACK_NAMES: Final = frozenset({MSGPACK, "application/vnd.msgpack", "application/x-msgpack"})
NDJSON_NAMES: Final = frozenset(
    {NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)

WAITED: Final = "Forebay-Waited-Seconds"
"""The header of a push that waited in a spool: for how long."""
