"""Destinations over HTTP/1.1: a lean client on asyncio's protocols and httptools.

Why not a client that exists: a relay sends ten thousand requests a second in one process, beside receiving
and keeping them. Requests of 1 KiB to a server on loopback cost aiohttp's client two to three times the
processor time (`benchmarks/parts/deliver_http.py` measures both).
"""
