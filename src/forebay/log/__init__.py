"""The log seam (cold tier) and its implementations: where blocks live for good."""
