"""Blocks as bytes, kept for good: what any later version must still read."""
