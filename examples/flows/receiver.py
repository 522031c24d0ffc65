"""A receiver of orders: prints each once, whatever is sent again. Run it as `python receiver.py [PORT]`."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

seen: set[str] = set()
"""Ids of what was taken; one that must survive a restart keeps them beside what it does with the orders."""


class Receiver(BaseHTTPRequestHandler):
    """Takes a POST, and answers 204."""

    def do_POST(self) -> None:
        """Print an order, unless its id was there before."""
        order = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.headers["webhook-id"]
        if name not in seen:
            seen.add(name)
            print(name, order.decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
