"""The client without a network."""
