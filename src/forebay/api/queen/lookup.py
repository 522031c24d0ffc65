"""Which message a client means: by its partition and its transaction id, as clients name messages."""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay.api.calls import Call
from forebay.api.queen.hands import message_of, transaction_of
from forebay.log.values import Queue
from forebay.model import Corrupt, Rejected

_LETTERS_MAX: Final = 100_000
"""Dead letters of a group that are searched for one."""
_PAGE: Final = 1_000


class NoMessage(Rejected):
    """There is no such message, or it is too long ago."""

    status = 404


class Meant(NamedTuple):
    """A message that a client means."""

    queue: Queue
    partition: str
    id: int


async def meant(call: Call) -> Meant:
    """The message of the path; NoMessage when there is none.

    Transaction ids are found for as long as the queue remembers them; those of dead letters for as long as
    there are such, at a cost by the letters of the queue.
    """
    wanted, transaction = call.params["partition"].lower(), call.params["transaction"]
    partition = (await call.desk.directory.find([wanted])).get(wanted)
    queues = await call.desk.queues_by({partition.queue}) if partition is not None else []
    if partition is None or not queues:
        raise _unknown()
    (queue,) = queues
    call.allow(queue.name)
    id = await _located(call, queue, partition.name, transaction)
    if id is None:
        id = await _among_letters(call, queue, partition.name, transaction)
    if id is None:
        raise _unknown()
    return Meant(queue, partition.name, id)


async def _located(call: Call, queue: Queue, partition: str, transaction: str) -> int | None:
    (id,) = await call.desk.store.log.locate(queue, [(partition, transaction)])
    if id is not None:
        return id
    number = message_of(queue, transaction)
    return number if number is not None and await _is_there(call, queue, partition, number) else None


async def _is_there(call: Call, queue: Queue, partition: str, id: int) -> bool:
    """Whether a partition has a message of this number, and the message no other name."""
    block = (await call.desk.store.log.find(id)).block
    if block is None:
        return False
    message = block.decode(queue.name).message(id - block.first)
    return message.partition == partition and message.transaction_id is None


async def _among_letters(call: Call, queue: Queue, partition: str, transaction: str) -> int | None:
    log = call.desk.store.log
    for group in await log.groups(queue):
        after, looked = 0, 0
        while looked < _LETTERS_MAX and (page := await log.dead_letters(group, after=after, limit=_PAGE)):
            for letter in page:
                try:
                    message = letter.message()
                except Corrupt:
                    continue
                named = transaction_of(letter.message_id, message.transaction_id)
                if named == transaction and message.partition == partition:
                    return letter.message_id
            after, looked = page[-1].message_id, looked + len(page)
    return None


def _unknown() -> NoMessage:
    return NoMessage("Message not found", hint="it never was there, or nothing is remembered of it any more")
