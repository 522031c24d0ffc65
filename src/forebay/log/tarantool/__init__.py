"""The log in a Tarantool server."""

from forebay.log.tarantool.log import TarantoolLog

__all__ = ["TarantoolLog"]
