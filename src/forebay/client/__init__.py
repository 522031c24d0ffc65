"""The client of a server: the store's verbs over HTTP, for asynchronous and for synchronous programs."""

from forebay.client.client import Client
from forebay.client.sync import SyncClient

__all__ = ["Client", "SyncClient"]
