"""The store: leases, order, attempts, tiers and settling, written once for all logs and warm tiers."""
