"""The warm tier on Valkey or Redis, shared by several servers."""

from forebay.warm.valkey.warm import ValkeyWarm

__all__ = ["ValkeyWarm"]
