"""The behaviour of the warm tier, over every implementation."""
