"""What is pushed while nobody knows whether its queue is encrypted."""

from __future__ import annotations

from typing import Final

from tests.integration.queen.calling import Caller
from tests.servers import ForebayServer
from tests.servers.process import free_port

KEY: Final = "5c" * 32
SECRET: Final = "nobody may read this"


def _spooled(server: ForebayServer) -> bytes:
    files = [path for path in (server.data / "spool").rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)


def test_payloads_are_sealed_on_disk_where_the_log_was_never_seen() -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    for variables in ({}, {"QUEEN_ENCRYPTION_KEY": KEY}):
        server = ForebayServer(nowhere, variables=variables)
        try:
            server.start(ready=False)
            (answer,) = Caller(server).push("q", SECRET, transactionId="spooled")
            assert answer["status"] == "buffered"
            spooled = _spooled(server)
            assert b"spooled" in spooled
            assert (SECRET.encode() in spooled) == (not variables)
        finally:
            server.close()
