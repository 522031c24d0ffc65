"""Forebay: a durable queue for data pipelines."""

__all__ = ["__version__"]

__version__ = "0.1.0"
