"""The message: what a producer pushes and a worker gets.

Invariants: a message is never changed once made; no headers and an empty set of headers are the
same thing.
"""

import msgspec


class Message(msgspec.Struct, frozen=True, gc=False):
    """A payload, and what is needed to order, identify, route and delay it.

    `transaction_id` identifies the message to its producer. `headers` carry flow, action, trace and
    the like. `start_time` is in microseconds: the message is not handed out before it.
    """

    payload: bytes
    partition: str = ""
    transaction_id: str | None = None
    headers: dict[str, str] | None = None
    start_time: int | None = None


def whole(given: Message | bytes) -> Message:
    """A message; bytes are the payload of one that has nothing else."""
    return given if isinstance(given, Message) else Message(given)
