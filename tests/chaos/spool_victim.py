"""A process that spools for ever and says what was acknowledged; it is there to be killed."""

import asyncio
import os
import random
import sys
from pathlib import Path

from forebay.disk import RealDisk
from forebay.model import Block, Message, format_id
from forebay.spool.lines import SpooledBlock
from forebay.spool.settings import SpoolSettings
from forebay.spool.spool import Spool


async def push(spool: Spool, name: str, chance: random.Random) -> None:
    """Spool small blocks, and say of each that it will be, and that it is."""
    for number in range(1 << 60):
        payload = b'{"n":%d}' % number if chance.random() < 0.8 else chance.randbytes(chance.randint(1, 5000))
        block = Block.of([Message(payload, name)] * chance.randint(1, 20))
        said = f"{name} {format_id(block.id)} {len(block)}"
        os.write(1, f"try {said}\n".encode())
        await spool.append([SpooledBlock("orders", block)])
        os.write(1, f"ack {said}\n".encode())


async def main(folder: str, seed: str) -> None:
    """Four writers on files that are finished all the time, so that kills meet renames too."""
    settings = SpoolSettings(events_per_file=60, file_seconds_max=0.005)
    async with await Spool.open(RealDisk(Path(folder)), settings) as spool, asyncio.TaskGroup() as tasks:
        for name in "abcd":
            tasks.create_task(push(spool, name, random.Random(f"{seed}/{name}")))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
