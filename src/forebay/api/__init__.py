"""The HTTP API: the server, its keys and its limits."""
