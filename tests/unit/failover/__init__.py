"""Failover, on a log that comes and goes."""
