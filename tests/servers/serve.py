"""A server process for tests: `python -m tests.servers.serve STORE_URL SETTINGS_JSON`."""

import asyncio
import logging
import sys

import msgspec
import uvloop

from forebay.api.context import Context
from forebay.api.serving import HttpServer, listen
from forebay.api.settings import ServerSettings
from forebay.app.opening import open_embedded


async def serve(url: str, settings: ServerSettings) -> None:
    """Serve until SIGTERM."""
    context = Context(settings, shown={"store": url.partition("://")[0]})
    server = HttpServer(context, lambda: open_embedded(url), listen(settings.listen))
    server.handle_signals()
    await server.run()


def main() -> None:
    """Run the server of the command line."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    settings = msgspec.json.decode(sys.argv[2], type=ServerSettings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], settings))


if __name__ == "__main__":
    main()
