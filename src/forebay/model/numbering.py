"""Message ids: a queue's number and a sequence number packed in a positive int64.

::

    bit 63   62 ............ 45   44 ............................ 0
    0        queue number (18)    sequence number (45)

Invariants: both numbers start at 1, so no id is 0; the ids of one queue sort by sequence number.
"""

from collections.abc import Sequence as Sequence_
from typing import Final, NewType, cast

from forebay.model.errors import Rejected

QueueNumber = NewType("QueueNumber", int)
Sequence = NewType("Sequence", int)
MessageId = NewType("MessageId", int)

QUEUE_BITS: Final = 18
SEQUENCE_BITS: Final = 45
QUEUE_NUMBER_MAX: Final = (1 << QUEUE_BITS) - 1
SEQUENCE_MAX: Final = (1 << SEQUENCE_BITS) - 1
MESSAGE_ID_MAX: Final = (1 << QUEUE_BITS + SEQUENCE_BITS) - 1
_DIGITS_MAX: Final = len(str(MESSAGE_ID_MAX))
_HINT: Final = "give the number that came with the message"


def pack(queue: int, sequence: int) -> MessageId:
    """Make the id of message number `sequence` of queue number `queue`."""
    if not 1 <= queue <= QUEUE_NUMBER_MAX:
        raise Rejected(
            f"queue number {queue} is out of range",
            hint=f"queue numbers run from 1 to {QUEUE_NUMBER_MAX}",
        )
    if not 1 <= sequence <= SEQUENCE_MAX:
        raise Rejected(
            f"sequence number {sequence} is out of range",
            hint=f"sequence numbers run from 1 to {SEQUENCE_MAX}",
        )
    return MessageId(queue << SEQUENCE_BITS | sequence)


def queue_of(message_id: int) -> QueueNumber:
    """Return the queue number of an id that is known to be valid."""
    return QueueNumber(message_id >> SEQUENCE_BITS)


def sequence_of(message_id: int) -> Sequence:
    """Return the sequence number of an id that is known to be valid."""
    return Sequence(message_id & SEQUENCE_MAX)


def unpack(message_id: int) -> tuple[QueueNumber, Sequence]:
    """Return both numbers of an id; one that `pack` could not have made is rejected."""
    queue, sequence = queue_of(message_id), sequence_of(message_id)
    if not (1 <= queue <= QUEUE_NUMBER_MAX and sequence >= 1):
        raise Rejected(f"message id {message_id} is out of range", hint=_HINT)
    return queue, sequence


def parse_message_id(value: str | int) -> MessageId:
    """Read an id from a request: a number, or its decimal digits."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
            raise Rejected(f"message id {value[:64]!r} is not a number", hint=_HINT)
        value = int(value)
    unpack(value)
    return MessageId(value)


def parse_message_ids(values: Sequence_[str | int]) -> list[MessageId]:
    """Read many ids at once, which is quicker than one by one."""
    if set(map(type, values)) == {str}:
        texts = cast("Sequence_[str]", values)
        digits = "".join(texts)
        if digits.isascii() and digits.isdigit() and max(map(len, texts)) <= _DIGITS_MAX and all(texts):
            ids = list(map(int, texts))
            in_range = min(ids) > SEQUENCE_MAX and max(ids) <= MESSAGE_ID_MAX
            if in_range and 0 not in map(SEQUENCE_MAX.__and__, ids):
                return cast("list[MessageId]", ids)
    return [parse_message_id(value) for value in values]
