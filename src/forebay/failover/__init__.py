"""Failover: what goes on while the log is away, and how it finds its way into the log afterwards."""
