"""Flows, without Spark."""
