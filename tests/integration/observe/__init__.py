"""Metrics of real programs, read by a real Prometheus."""
