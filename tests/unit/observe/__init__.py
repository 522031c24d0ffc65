"""Numbers of queues."""
