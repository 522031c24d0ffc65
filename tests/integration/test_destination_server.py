"""The destination of tests ends every connection that it has, also one that begins as it stops."""

import asyncio
import gc
import socket

import pytest

from tests.servers.destination import DestinationServer


@pytest.mark.parametrize("turns", range(5))
async def test_a_destination_that_ends_while_somebody_connects_leaves_no_connection(turns: int) -> None:
    async with DestinationServer() as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            for _ in range(5):
                await asyncio.sleep(0)
            gc.collect()
            await server.start()  # for its end
