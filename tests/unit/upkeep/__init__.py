"""Upkeep, with short periods."""
