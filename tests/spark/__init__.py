"""Queues on Spark, in a real session: sources, sinks, flows, replay and the archive."""
