"""Dead letters of a flow that were redriven: they are pushed again, to the end of its queue.

A flow reads on and never back, so nobody would take them up where they were. Finishing a letter and pushing
its message is one transaction: it is in the queue once, whatever is killed, and however many programs do it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Group, Queue, Room
from forebay.model import Conflict, Message, mint
from forebay.spark.publishing import patiently

_ROOM: Final = Room(1_000, 16 << 20)
"""What is pushed at a time; the rest when it is looked for again."""


async def push_again(log: Log, queue: Queue, group: Group, flow: str) -> int:
    """Push what a flow's group has to hand out as due; how many there were.

    None, and nothing has changed, when another program was at it meanwhile.
    """
    owner = f"flow/{flow}"
    left = await log.reclaim(group, owner, _ROOM, of=[owner])  # by somebody who ended in the middle of this
    found = await log.due(group, owner, _ROOM)
    claims = [*left.claims, *found.claims]
    if not claims:
        return 0
    pushed = [message for claim in claims for message in _messages(claim)]
    # One block each: in an ordered queue they can't share one.
    appends = [Append.of(queue, [message]) for message in pushed]
    settlements = [claim.settle_all() for claim in claims]
    commit_id = mint()
    try:
        await patiently(lambda: log.commit(appends, settlements, id=commit_id, atomic=True))
    except Conflict:
        return 0
    return len(pushed)


def _messages(claim: Claim) -> list[Message]:
    """What is not finished of a claim; under another transaction id, since its own is remembered."""
    return [
        msgspec.structs.replace(
            message,
            transaction_id=message.transaction_id and f"{message.transaction_id}/again-{claim.token}",
            start_time=None,
        )
        for _, message in claim.unfinished()
    ]
