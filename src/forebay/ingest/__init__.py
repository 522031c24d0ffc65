"""Ingest: what happens to pushes before they are written; the same in a client and in a server."""
