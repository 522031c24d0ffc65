"""Values, errors, time, limits and the block codec: what every other layer speaks in.

Invariants: nothing here does I/O or imports another layer; every public name is listed in
`__all__`.
"""

from forebay.model import bitmap
from forebay.model.block import Block
from forebay.model.cancelling import cancel
from forebay.model.check import body_bytes, check_block
from forebay.model.clock import (
    TIME_MAX,
    Clock,
    ManualClock,
    SystemClock,
    from_datetime,
    to_datetime,
)
from forebay.model.codec import HEADER_BYTES, Header, decode, encode, peek_header, verify
from forebay.model.columns import Headers
from forebay.model.compression import Compression
from forebay.model.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    ForebayError,
    LeaseLost,
    Misconfigured,
    Rejected,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    UnknownGroup,
    UnknownQueue,
)
from forebay.model.flow import NO_FLOW, Flow, flow_counts, flow_of
from forebay.model.identity import (
    ID_BYTES,
    BlockId,
    IdMint,
    format_id,
    id_time,
    mint,
    mint_many,
    parse_id,
)
from forebay.model.limits import (
    BLOCK_BYTES_CEILING,
    BLOCK_MESSAGES_CEILING,
    Limits,
    check_group_name,
    check_partition,
    check_queue_name,
)
from forebay.model.message import Message
from forebay.model.numbering import (
    MESSAGE_ID_MAX,
    QUEUE_BITS,
    QUEUE_NUMBER_MAX,
    SEQUENCE_BITS,
    SEQUENCE_MAX,
    MessageId,
    QueueNumber,
    Sequence,
    pack,
    parse_message_id,
    parse_message_ids,
    queue_of,
    sequence_of,
    unpack,
)
from forebay.model.quantity import format_bytes, format_seconds, parse_bytes, parse_seconds
from forebay.model.redaction import redact

__all__ = [
    "BLOCK_BYTES_CEILING",
    "BLOCK_MESSAGES_CEILING",
    "HEADER_BYTES",
    "ID_BYTES",
    "MESSAGE_ID_MAX",
    "NO_FLOW",
    "QUEUE_BITS",
    "QUEUE_NUMBER_MAX",
    "SEQUENCE_BITS",
    "SEQUENCE_MAX",
    "TIME_MAX",
    "Block",
    "BlockId",
    "Clock",
    "Compression",
    "Conflict",
    "Corrupt",
    "Flow",
    "Forbidden",
    "ForebayError",
    "Header",
    "Headers",
    "IdMint",
    "LeaseLost",
    "Limits",
    "ManualClock",
    "Message",
    "MessageId",
    "Misconfigured",
    "QueueNumber",
    "Rejected",
    "Sequence",
    "SystemClock",
    "TooLarge",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "UnknownGroup",
    "UnknownQueue",
    "bitmap",
    "body_bytes",
    "cancel",
    "check_block",
    "check_group_name",
    "check_partition",
    "check_queue_name",
    "decode",
    "encode",
    "flow_counts",
    "flow_of",
    "format_bytes",
    "format_id",
    "format_seconds",
    "from_datetime",
    "id_time",
    "mint",
    "mint_many",
    "pack",
    "parse_bytes",
    "parse_id",
    "parse_message_id",
    "parse_message_ids",
    "parse_seconds",
    "peek_header",
    "queue_of",
    "redact",
    "sequence_of",
    "to_datetime",
    "unpack",
    "verify",
]
