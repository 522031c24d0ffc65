"""The log in PostgreSQL."""

from forebay.log.postgres.log import PostgresLog

__all__ = ["PostgresLog"]
