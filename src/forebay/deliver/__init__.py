"""Deliver: requests on their way to destinations, whatever the destinations do."""
