"""The relay as one would put it together: aiohttp in, persist-queue on disk, aiohttp out.

Run as `python -m benchmarks.relay.rival FOLDER URL`. Like ours it answers when the request is committed,
takes it off the disk when it is delivered, and sends with four workers.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import persistqueue
import uvloop
from aiohttp import ClientSession, web

_WORKERS: Final = 4


async def main(folder: str, url: str) -> None:
    """Serve until killed; the port is printed."""
    queue: Any = persistqueue.FIFOSQLiteAckQueue(folder, multithreading=True, auto_commit=True)
    writer, reader = ThreadPoolExecutor(1), ThreadPoolExecutor(_WORKERS)
    loop = asyncio.get_running_loop()

    async def accept(request: web.Request) -> web.Response:
        kept = (request.method, str(request.rel_url), list(request.headers.items()), await request.read())
        await loop.run_in_executor(writer, queue.put, kept)
        return web.Response(status=202)

    async def work(session: ClientSession) -> None:
        while True:
            item = await loop.run_in_executor(reader, queue.get)
            method, _, headers, body = item
            left_out = ("Host", "Content-Length")
            kept = [pair for pair in headers if pair[0] not in left_out]
            async with session.request(method, url, headers=kept, data=body) as answer:
                await answer.read()
            await loop.run_in_executor(writer, queue.ack, item)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", accept)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    async with ClientSession() as session:
        await asyncio.gather(*(work(session) for _ in range(_WORKERS)))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
