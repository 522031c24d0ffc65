"""SqliteLog: the embedded default log, one file that several processes may open at once."""

from forebay.log.sqlite.log import SqliteLog

__all__ = ["SqliteLog"]
